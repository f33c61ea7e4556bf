"""A backend of the front door that plays the events of a test."""

from collections.abc import Sequence

from aici.backend import Abort, Call, Cancel, ChatCall, ChatOutcome, Sink
from aici.errors import AiciError
from aici_base.ids import TokenId
from aici_engine.events import Event, FinishEvent, FinishReason, Origin, Timings, Token, TokenEvent, Usage


def token_event(text: str) -> TokenEvent:
    return TokenEvent(Token(TokenId(1), text.encode(), Origin.SAMPLED), text)


def finish_event(text: str, *, reason: FinishReason = FinishReason.STOP, error: AiciError | None = None) -> FinishEvent:
    return FinishEvent(
        reason=reason,
        text=text,
        tail="",
        tokens=(),
        usage=Usage(prompt_tokens=1, sampled_tokens=1, ff_tokens=0),
        timings=Timings(started_s=0.0, first_token_s=0.0, total_s=0.0),
        logs="",
        storage=(),
        error=error,
    )


class FakeBackend:
    """Every request gets the same events at once. `num_aborts` counts calls of the requests' aborts."""

    model = "fake"

    def __init__(self, events: Sequence[Event | AiciError] = ()) -> None:
        self._events = events
        self.calls: list[Call] = []
        self.num_aborts = 0
        self.num_closes = 0

    def start(self, call: Call, sink: Sink) -> Abort:
        self.calls.append(call)
        for event in self._events:
            sink(event)
        return self._abort

    def chat(self, call: ChatCall, cancel: Cancel) -> ChatOutcome:
        raise NotImplementedError

    def close(self) -> None:
        self.num_closes += 1

    def _abort(self) -> None:
        self.num_aborts += 1
