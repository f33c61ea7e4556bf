"""The response object, as the SDK's type `Response` has it."""

import time
from typing import TYPE_CHECKING, Any, TypeAlias

from aici_engine.server.protocols.chat.turn import TurnUsage
from aici_engine.server.protocols.responses.items import new_id

if TYPE_CHECKING:
    from aici_engine.server.protocols.responses.request import ResponseRequest

Json: TypeAlias = dict[str, Any]


def opening(body: "ResponseRequest", model: str) -> Json:
    """Return the response to a request before anything is generated."""
    return {
        "id": new_id("resp"),
        "object": "response",
        "created_at": int(time.time()),
        "completed_at": None,
        "status": "in_progress",
        "background": False,
        "error": None,
        "incomplete_details": None,
        "instructions": body.instructions,
        "max_output_tokens": body.max_output_tokens,
        "max_tool_calls": body.max_tool_calls,
        "metadata": body.metadata,
        "model": model,
        "output": [],
        "parallel_tool_calls": body.parallel_tool_calls,
        "previous_response_id": body.previous_response_id,
        "prompt_cache_key": body.prompt_cache_key,
        "reasoning": {"effort": body.effort, "summary": None},
        "safety_identifier": body.safety_identifier,
        "service_tier": "default",
        "temperature": float(body.temperature),
        "text": body.text_config(),
        "tool_choice": body.choice_field(),
        "tools": [tool.model_dump(exclude_none=True) for tool in body.tools],
        "top_logprobs": body.top_logprobs or 0,
        "top_p": float(body.top_p),
        "truncation": body.truncation,
        "usage": None,
        "user": body.user,
    }


def usage(used: TurnUsage) -> Json:
    return {
        "input_tokens": used.prompt,
        "input_tokens_details": {"cached_tokens": used.cached, "cache_write_tokens": 0},
        "output_tokens": used.output,
        "output_tokens_details": {"reasoning_tokens": used.thought},
        "total_tokens": used.prompt + used.output,
    }
