"""A request as the caller makes it, and the handle that the caller keeps."""

import queue
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from aici_base.ids import SeqId, TokenId
from aici_engine.config import SamplingParams
from aici_engine.events import Event, FinishEvent

Sink = Callable[[Event], None]
"""Receives a request's events on the engine's thread, so it must not block and must not raise."""


@dataclass(frozen=True, slots=True)
class ControllerCall:
    """`module_id`: hash or tag. `argument`: a string goes to the guest as it is, anything else as JSON."""

    module_id: str
    argument: object = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """`prompt`: text, tokenized as the model's tokenizer does by default, or the tokens themselves.

    `score_from`: also score the prompt's tokens from this index on, by the log-softmax of the logits as the model gives
    them: no bias, no temperature. The k likeliest come along, k = `sampling.logprobs`. The prompt's first token has no
    log-probability: nothing precedes it.

    `priority`: lower is sooner; a step of it is worth a minute of waiting.

    `cache_salt`: what was computed of others' tokens serves this request only if theirs is the same. How soon a request
    answers, and its usage, tell what others have sent.
    """

    prompt: str | Sequence[TokenId]
    sampling: SamplingParams = field(default_factory=SamplingParams)
    controller: ControllerCall | None = None
    score_from: int | None = None
    priority: int = 0
    cache_salt: str | None = None


class RequestHandle:
    """One submitted request. Its events are read once, by one thread; `abort` may be called from any."""

    def __init__(self, seq_id: SeqId, abort: Callable[[SeqId], None]) -> None:
        self.seq_id = seq_id
        self._abort = abort
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._finish: FinishEvent | None = None

    def put(self, event: Event) -> None:
        """For the engine."""
        self._events.put(event)

    def abort(self) -> None:
        """End the request before its next step; its finish event still comes.

        Nothing happens if it has ended already.
        """
        self._abort(self.seq_id)

    def events(self) -> Iterator[Event]:
        """Blocks for each event; ends after the finish event."""
        while self._finish is None:
            event = self._events.get()
            if isinstance(event, FinishEvent):
                self._finish = event
            yield event

    def wait(self) -> FinishEvent:
        """Blocks until the request has ended; may be asked again."""
        for _ in self.events():
            pass
        assert self._finish is not None
        return self._finish
