"""Responses of `/v1/messages`: one message, or a stream of events that add up to the same message."""

import contextlib
import uuid
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import orjson

from aici_base.errors import AiciError
from aici_engine.chat.tools import CallArguments, CallStart
from aici_engine.server.gateway import sse
from aici_engine.server.gateway.error_responses import anthropic_body
from aici_engine.server.protocols.chat.collect import collect_turns
from aici_engine.server.protocols.chat.turn import Delta, Text, Thought, TurnEnd
from aici_engine.server.protocols.warnings import warning_field

Json: TypeAlias = dict[str, Any]
_SIGNATURE = "aici"
"""Clients want a signature. Nothing here signs thoughts: a thought sent back is taken as it is."""


def opening(model: str, input_tokens: int) -> Json:
    """Return an empty message. Its usage counts the whole input; only the end of a turn knows the cached tokens."""
    return {
        "id": f"msg_{uuid.uuid4().hex[:24]}",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": _usage(input_tokens, 0, 0) | {"service_tier": "standard"},
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageEnding:
    """What a response says beside the turn: the token limit of the request, and warnings. `hides_thoughts`: thinking
    blocks have no text."""

    max_tokens: int
    warnings: Sequence[str] = ()
    hides_thoughts: bool = False


async def whole(turn: AsyncGenerator[Delta, None], message: Json, ending: MessageEnding) -> Json:
    """Run a turn and return the whole message, for orjson. The text has no tokens that a controller removed.

    If the token limit cut a tool call short, the call's input is empty: half a value would be wrong.
    """
    [answer] = await collect_turns([turn])
    assert answer.end is not None
    content: list[Json] = []
    if answer.thought:
        content.append(_thinking("" if ending.hides_thoughts else answer.thought) | {"signature": _SIGNATURE})
    if answer.text:
        content.append({"type": "text", "text": answer.text})
    for call in answer.calls:
        block = _tool_use(call.call_id, call.name)
        content.append(block | {"input": orjson.Fragment(call.arguments)})
    if answer.end.reason == "length" and answer.calls:
        content[-1]["input"] = {}
    end = _end(answer.end, ending)
    more = {"usage": message["usage"] | end["usage"], **warning_field(ending.warnings)}
    return message | {"content": content, **end["delta"], **more}


async def streamed(
    turn: AsyncGenerator[Delta, None], message: Json, ending: MessageEnding
) -> AsyncGenerator[bytes, None]:
    """Yield a turn's events. A failure before the first delta is raised and gets an HTTP status; a later failure is an
    `error` event."""
    index, kind = -1, ""
    started = False
    try:
        async with contextlib.aclosing(turn):
            async for delta in turn:
                if not started:
                    yield _event({"type": "message_start", "message": message})
                    started = True
                block, change = _parts(delta, kind)
                if index >= 0 and (block is not None or isinstance(delta, TurnEnd)):
                    if kind == "thinking":
                        signed = {"type": "signature_delta", "signature": _SIGNATURE}
                        yield _event({"type": "content_block_delta", "index": index, "delta": signed})
                    yield _event({"type": "content_block_stop", "index": index})
                if block is not None:
                    index, kind = index + 1, block["type"]
                    yield _event({"type": "content_block_start", "index": index, "content_block": block})
                if change is not None and not (kind == "thinking" and ending.hides_thoughts):
                    yield _event({"type": "content_block_delta", "index": index, "delta": change})
                if isinstance(delta, TurnEnd):
                    yield _event(_end(delta, ending))
                    yield _event({"type": "message_stop"})
    except AiciError as error:
        if not started:
            raise
        yield _event(anthropic_body(error))


def _event(data: Json) -> bytes:
    return sse.event(data, name=data["type"])


def _parts(delta: Delta, kind: str) -> tuple[Json | None, Json | None]:
    """Return (new content block or None, change of the block or None) for a delta. `kind`: the open block's type.

    Text continues an open text block. A tool call always begins a new block.
    """
    match delta:
        case Thought(text) if text:
            block = None if kind == "thinking" else _thinking("") | {"signature": ""}
            return block, {"type": "thinking_delta", "thinking": text}
        case Text(text) if text:
            block = None if kind == "text" else {"type": "text", "text": ""}
            return block, {"type": "text_delta", "text": text}
        case CallStart(call_id, name):
            return _tool_use(call_id, name), None
        case CallArguments(text):
            return None, {"type": "input_json_delta", "partial_json": text}
    return None, None


def _thinking(text: str) -> Json:
    return {"type": "thinking", "thinking": text}


def _tool_use(call_id: str, name: str) -> Json:
    return {"type": "tool_use", "id": f"toolu_{call_id.removeprefix('call_')}", "name": name, "input": {}}


_REASONS = {"end": "end_turn", "stop": "stop_sequence", "length": "max_tokens", "tool_calls": "tool_use"}


def _end(end: TurnEnd, ending: MessageEnding) -> Json:
    reason = _REASONS[end.reason]
    if end.reason == "length" and end.usage.output < ending.max_tokens:
        reason = "model_context_window_exceeded"
    delta = {"stop_reason": reason, "stop_sequence": end.stop}
    return {
        "type": "message_delta",
        "delta": delta,
        "usage": _usage(end.usage.prompt, end.usage.cached, end.usage.output),
        **warning_field(ending.warnings),
    }


def _usage(prompt_tokens: int, cached_tokens: int, output_tokens: int) -> Json:
    """Return the usage in the protocol's way of counting: `input_tokens` does not include cached tokens."""
    return {
        "input_tokens": prompt_tokens - cached_tokens,
        "output_tokens": output_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": cached_tokens,
    }
