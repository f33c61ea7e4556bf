"""The outcome of a run, as a stream of text or as one JSON document."""

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aici_engine.events import Event, FinishEvent, Token


def stream_text(events: "Iterable[Event]", *, quiet: bool) -> "FinishEvent":
    """Write text raw as it comes, unless `quiet`; answer with the end. On a terminal a newline closes the text."""
    from aici_engine.events import FinishEvent, TokenEvent

    written = ""
    for event in events:
        if isinstance(event, FinishEvent):
            if not quiet:
                written = _write(event.tail) or written
                if sys.stdout.isatty() and not written.endswith("\n"):
                    _write("\n")
            return event
        if isinstance(event, TokenEvent) and not quiet:
            written = _write(event.text) or written
    raise AssertionError("a request ended without its last event")


def _write(text: str) -> str:
    sys.stdout.buffer.write(text.encode())
    sys.stdout.buffer.flush()
    return text


def document(prompt: str, model: str, ends: "Sequence[FinishEvent]") -> dict[str, Any]:
    """What `--json` prints: one sample stands by itself, several in a list."""
    samples = [_sample(end) for end in ends]
    head = {"model": model, "prompt": prompt}
    return head | samples[0] if len(samples) == 1 else head | {"samples": samples}


def _sample(end: "FinishEvent") -> dict[str, Any]:
    usage, timings = end.usage, end.timings
    return {
        "text": end.text,
        "tokens": [_token(token) for token in end.tokens],
        "finish_reason": str(end.reason),
        **({} if end.stop is None else {"stop": end.stop}),
        "usage": {
            "prompt_tokens": usage.prompt_tokens,
            "sampled_tokens": usage.sampled_tokens,
            "ff_tokens": usage.ff_tokens,
            "cost": usage.cost,
        },
        "timings": {
            "started_s": timings.started_s,
            "first_token_s": timings.first_token_s,
            "total_s": timings.total_s,
        },
        "logs": end.logs,
        "variables": _variables(end.storage),
        "error": end.error.message if end.error else None,
    }


def _token(token: "Token") -> dict[str, Any]:
    shown = {"id": token.token_id, "bytes": token.data.hex(), "origin": str(token.origin)}
    if token.logprob is None:
        return shown
    likeliest = [{"id": token_id, "logprob": logprob} for token_id, logprob in token.top_logprobs]
    return shown | {"logprob": token.logprob, "top_logprobs": likeliest}


def _variables(storage: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """The last values that the controller wrote; bytes that are no UTF-8 show as U+FFFD."""
    values: dict[str, bytes] = {}
    for command in storage:
        if write := command.get("WriteVar"):
            before = values.get(write["name"], b"") if write["op"] == "Append" else b""
            values[write["name"]] = before + bytes.fromhex(write["value"])
    return {name: value.decode(errors="replace") for name, value in values.items()}
