"""Turns of a chat on a server, by the OpenAI protocol; with a constraint by AICI REST."""

from typing import Any

from aici.backend import Cancel, ChatCall, ChatOutcome
from aici.remote.connection import Server, encode
from aici.tools import wire_form
from aici_engine.parameter import Api
from aici_engine.sampling_params import to_request


def run_chat(server: Server, model: str | None, call: ChatCall, cancel: Cancel) -> ChatOutcome:
    """Ask for a turn and wait for the end. Another thread may end the turn by `cancel`."""
    request: dict[str, Any] = {"model": model or "default", "messages": list(call.messages)}
    if call.tools:
        named = {"type": "function", "function": {"name": call.tool_choice}}
        is_named = call.tool_choice not in ("auto", "none", "required")
        request |= {
            "tools": [wire_form(tool) for tool in call.tools],
            "tool_choice": named if is_named else call.tool_choice,
            "parallel_tool_calls": call.parallel,
        }
        if call.schema_options:
            request["schema_options"] = call.schema_options
    request |= to_request(Api.OPENAI_CHAT, call.sampling)
    with server.json("POST", "/chat/completions", encode(request), cancel=cancel) as told:
        choice, usage = told["choices"][0], told["usage"]
        message = choice["message"]
        return ChatOutcome(
            text=message["content"] or "",
            calls=tuple(
                (made["id"], made["function"]["name"], made["function"]["arguments"])
                for made in message.get("tool_calls") or ()
            ),
            finish_reason=choice["finish_reason"],
            prompt_tokens=usage["prompt_tokens"],
            output_tokens=usage["completion_tokens"],
            warnings=tuple(told.get("warnings", ())),
            reasoning=message.get("reasoning_content", ""),
        )
