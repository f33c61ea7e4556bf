"""The outcome of a run, as a stream of text or as one JSON document."""

import sys
from typing import TYPE_CHECKING, Any

from aici_cli.output import on_stdout
from aici_engine.events import explanation_fields

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aici import Fork, Result, Stream, Token


def stream_text(stream: "Stream[Any]", *, quiet: bool = False, newline: bool | None = None) -> "Result[Any]":
    """Read a stream to its end, and write the text to stdout as it comes, unless `quiet`.

    When the text forks, the streaming stops; the text of each fork follows when all forks have ended. With `newline`,
    by default on a terminal, a newline ends the text.
    """
    from aici import FinishEvent, ForkEvent, TokenEvent

    written = ""
    forked = False
    tail = ""
    for event in stream:
        if isinstance(event, FinishEvent):
            tail = event.tail
            break  # or the stream would raise what failed
        forked = forked or isinstance(event, ForkEvent)
        if isinstance(event, TokenEvent) and not quiet and not forked:
            written = _write(event.text) or written
    result = stream.result()
    if not quiet:
        _close(result, tail, written, newline=sys.stdout.isatty() if newline is None else newline)
    return result


def _close(result: "Result[Any]", tail: str, written: str, *, newline: bool) -> None:
    if result.forks:
        if written and not written.endswith("\n"):
            _write("\n")
        for fork in result.forks:
            written = _write(f"[{fork.index}] {fork.text}" + ("" if fork.text.endswith("\n") else "\n"))
    else:
        written = _write(tail) or written
    if newline and not written.endswith("\n"):
        _write("\n")


def _write(text: str) -> str:
    sys.stdout.buffer.write(on_stdout(text).encode())
    sys.stdout.buffer.flush()
    return text


def document(prompt: str, model: str, results: "Sequence[Result[Any]]") -> dict[str, Any]:
    """Return what `--json` prints: one sample stands by itself, several stand in a list."""
    samples = [_sample(result) for result in results]
    head = {"model": model, "prompt": prompt}
    return head | samples[0] if len(samples) == 1 else head | {"samples": samples}


def _sample(result: "Result[Any]") -> dict[str, Any]:
    usage, timings = result.usage, result.timings
    return {
        **_sequence(result),
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
        "variables": dict(result.variables),
        **({"forks": [_fork(fork) for fork in result.forks]} if result.forks else {}),
        **({"warnings": list(result.warnings)} if result.warnings else {}),
    }


def _fork(fork: "Fork") -> dict[str, Any]:
    return {"index": fork.index, "parent": fork.parent, **_sequence(fork)}


def _sequence(sequence: "Result[Any] | Fork") -> dict[str, Any]:
    return {
        "text": sequence.text,
        "tokens": [token_fields(token) for token in sequence.tokens],
        "finish_reason": str(sequence.finish_reason),
        **({} if sequence.stop is None else {"stop": sequence.stop}),
        "logs": sequence.logs,
        "error": sequence.error.message if sequence.error else None,
    }


def token_fields(token: "Token") -> dict[str, Any]:
    shown: dict[str, Any] = {"id": token.token_id, "bytes": token.data.hex(), "origin": str(token.origin)}
    if token.logprob is not None:
        likeliest = [{"id": token_id, "logprob": logprob} for token_id, logprob in token.top_logprobs]
        shown |= {"logprob": token.logprob, "top_logprobs": likeliest}
    if token.explanation is not None:
        shown["explanation"] = explanation_fields(token.explanation)
    return shown
