"""The outcome of a run, as a stream of text or as one JSON document."""

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aici_engine.events import Event, FinishEvent, Token


@dataclass(slots=True)
class Answer:
    """`forks`: how each but the root ended, by its number; `parents`: which they were forked from. `storage`: what all
    of them wrote, as it came."""

    end: "FinishEvent"
    forks: "dict[int, FinishEvent]"
    parents: dict[int, int]
    storage: list[Mapping[str, Any]]

    @property
    def ends(self) -> "dict[int, FinishEvent]":
        return {0: self.end, **dict(sorted(self.forks.items()))}


def stream_text(events: "Iterable[Event]", *, quiet: bool) -> Answer:
    """Write text raw as it comes, unless `quiet`. On a terminal a newline closes the text.

    Where the text forks the stream stops; the text of each fork follows when all have ended.
    """
    from aici_engine.events import ControlEvent, FinishEvent, ForkedEvent, ForkEvent, TokenEvent

    written = ""
    forks: dict[int, FinishEvent] = {}
    parents: dict[int, int] = {}
    storage: list[Mapping[str, Any]] = []
    for event in events:
        number, inner = (event.fork, event.event) if isinstance(event, ForkEvent) else (0, event)
        if isinstance(inner, ForkedEvent):
            parents[number] = inner.parent
        elif isinstance(inner, ControlEvent):
            storage += inner.storage
        elif isinstance(inner, FinishEvent) and number:
            forks[number] = inner
        elif isinstance(event, FinishEvent):
            answer = Answer(event, forks, parents, storage)
            if not quiet:
                _close(answer, written)
            return answer
        elif isinstance(event, TokenEvent) and not quiet and not parents:
            written = _write(event.text) or written
    raise AssertionError("a request ended without its last event")


def _close(answer: Answer, written: str) -> None:
    if answer.forks:
        if written and not written.endswith("\n"):
            _write("\n")
        for number, end in answer.ends.items():
            written = _write(f"[{number}] {end.text}" + ("" if end.text.endswith("\n") else "\n"))
    else:
        written = _write(answer.end.tail) or written
    if sys.stdout.isatty() and not written.endswith("\n"):
        _write("\n")


def _write(text: str) -> str:
    sys.stdout.buffer.write(text.encode())
    sys.stdout.buffer.flush()
    return text


def document(prompt: str, model: str, answers: Sequence[Answer]) -> dict[str, Any]:
    """What `--json` prints: one sample stands by itself, several in a list."""
    samples = [_sample(answer) for answer in answers]
    head = {"model": model, "prompt": prompt}
    return head | samples[0] if len(samples) == 1 else head | {"samples": samples}


def _sample(answer: Answer) -> dict[str, Any]:
    end = answer.end
    usage, timings = end.usage, end.timings
    return {
        **_sequence(end),
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
        "variables": _variables(answer.storage),
        **({"forks": [_fork(answer, number) for number in answer.ends]} if answer.forks else {}),
    }


def _fork(answer: Answer, number: int) -> dict[str, Any]:
    return {"index": number, "parent": answer.parents.get(number), **_sequence(answer.ends[number])}


def _sequence(end: "FinishEvent") -> dict[str, Any]:
    return {
        "text": end.text,
        "tokens": [_token(token) for token in end.tokens],
        "finish_reason": str(end.reason),
        **({} if end.stop is None else {"stop": end.stop}),
        "logs": end.logs,
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
