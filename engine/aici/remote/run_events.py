"""The objects of a run in AICI REST, as the events of a local engine."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from aici.errors import AiciError
from aici_base.ids import TokenId
from aici_engine.control.guest_errors import guest_error
from aici_engine.events import (
    AcceptedEvent,
    BacktrackEvent,
    ControlEvent,
    Event,
    Explanation,
    FinishEvent,
    FinishReason,
    ForkedEvent,
    ForkEvent,
    LikelyToken,
    Origin,
    SuspendedEvent,
    Timings,
    Token,
    TokenEvent,
    Usage,
)

NO_USAGE = Usage(prompt_tokens=0, sampled_tokens=0, ff_tokens=0)
NO_TIMINGS = Timings(started_s=None, first_token_s=None, total_s=0.0)


class RunEvents:
    """Reads the objects of one run. `model` is the server's name for the model, known from the first object on.

    A server may send several tokens with one text: the first of the tokens then carries the text. The first tokens
    of a fork are inherited from the parent.
    """

    def __init__(self) -> None:
        self.model = ""
        self._forks = {0: _Fork()}

    def read(self, objects: Iterable[Mapping[str, Any]]) -> Iterator[Event]:
        """Yield the events; the root's FinishEvent comes last, after the ends of the other forks."""
        for told in objects:
            if told["object"] == "initial-run":
                self.model = told["model"]
                yield AcceptedEvent()
                continue
            # New forks come first: readers then know of forks before further text.
            for gain in sorted(told["forks"], key=lambda gain: "parent" not in gain or gain["index"] in self._forks):
                number = gain["index"]
                events = self._forks.setdefault(number, _Fork()).take(gain)
                yield from (ForkEvent(number, event) for event in events) if number else events
            if "timings" in told:
                usage, timings = _usage(told["usage"]), _timings(told["timings"])
                for number, fork in reversed(self._forks.items()):
                    end = fork.end(usage, timings)
                    yield ForkEvent(number, end) if number else end
                return
        raise AiciError("the server ended the run without saying why")

    def ended(self, reason: FinishReason, error: AiciError | None = None) -> FinishEvent:
        """Return the end of a run that the client ended."""
        return self._forks[0].finish(reason, NO_USAGE, NO_TIMINGS, error=error)


class _Fork:
    """The state of one sequence."""

    def __init__(self) -> None:
        self._output: list[Token] = []
        self._logs: list[str] = []
        self._storage: list[Any] = []
        self._tail = ""
        self._last: Mapping[str, Any] = {}
        self._error = ""

    def take(self, gain: Mapping[str, Any]) -> Iterator[Event]:
        if not self._last and "parent" in gain:
            yield ForkedEvent(gain["parent"], "", ())
        self._last = gain
        self._error = self._error or gain["error"]
        self._logs.append(gain["logs"])
        self._storage += gain["storage"]
        if gain["storage"] or gain["logs"]:
            yield ControlEvent(gain["logs"], tuple(gain["storage"]))
        text = gain["text"]
        for entry in gain["tokens"]:
            if "backtrack" in entry:
                del self._output[max(0, len(self._output) - entry["backtrack"]) :]
                yield BacktrackEvent(entry["backtrack"])
            elif "suspended" in entry:
                yield SuspendedEvent()
            else:
                self._output.append(_token(entry))
                yield TokenEvent(self._output[-1], text)
                text = ""
        self._tail = text

    def end(self, usage: Usage, timings: Timings) -> FinishEvent:
        """`usage` and `timings` are totals of the run."""
        reason = FinishReason(self._last["finish_reason"])
        error = guest_error(self._error) if reason is FinishReason.FAIL else None
        return self.finish(reason, usage, timings, stop=self._last.get("stop"), error=error)

    def finish(
        self,
        reason: FinishReason,
        usage: Usage,
        timings: Timings,
        *,
        stop: str | None = None,
        error: AiciError | None = None,
    ) -> FinishEvent:
        return FinishEvent(
            reason=reason,
            text=_text(self._output, stop),
            tail=self._tail,
            tokens=tuple(self._output),
            usage=usage,
            timings=timings,
            logs="".join(self._logs),
            storage=tuple(self._storage),
            error=error,
            stop=stop,
        )


def _token(entry: Mapping[str, Any]) -> Token:
    top = tuple((TokenId(each["id"]), each["logprob"]) for each in entry.get("top_logprobs", ()))
    return Token(
        TokenId(entry["id"]),
        bytes.fromhex(entry["bytes"]),
        Origin(entry["origin"]),
        entry.get("logprob"),
        top,
        _explanation(entry.get("explanation")),
    )


def _explanation(told: Mapping[str, Any] | None) -> Explanation | None:
    if told is None:
        return None
    likeliest = tuple(
        LikelyToken(TokenId(each["id"]), each["text"], each["probability"], each["allowed"])
        for each in told["likeliest"]
    )
    return Explanation(**{**told, "likeliest": likeliest})


def _usage(told: Mapping[str, int]) -> Usage:
    return Usage(
        prompt_tokens=told["prompt_tokens"], sampled_tokens=told["sampled_tokens"], ff_tokens=told["forced_tokens"]
    )


def _timings(told: Mapping[str, float]) -> Timings:
    return Timings(started_s=told["started_s"], first_token_s=told["first_token_s"], total_s=told["total_s"])


def _text(output: Sequence[Token], stop: str | None) -> str:
    text = b"".join(token.data for token in output).decode("utf-8", "replace")
    return text if stop is None else text.partition(stop)[0]
