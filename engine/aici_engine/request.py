"""A request from the caller, and the handle for the caller."""

import queue
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from aici_base.ids import SeqId, TokenId
from aici_engine.config import SamplingParams
from aici_engine.events import Event, FinishEvent
from aici_engine.pooling_kinds import Pooling

Sink = Callable[[Event], None]
"""Receives the events of a request on the engine's thread. A sink must not block and must not raise."""


@dataclass(frozen=True, slots=True)
class ControllerCall:
    """A controller and its argument.

    `module_id`: the hash or a tag of the module. `argument`: a string is passed as is, any other value as JSON.
    """

    module_id: str
    argument: object = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """The owner of a request. Owners share the engine fairly, however many sequences an owner has.

    `owner`: requests of one user have the same owner. `weight`: so many sequences of this owner run for each sequence
    of an owner with weight 1, while places are too few. `most`: the sequences of the owner that compute at a time,
    forks included; further sequences wait. `guest_cpu_s`: seconds of processor time for the owner's guests in a minute;
    beyond, the guests take part in fewer steps. `pages`: the pages of the cache that the owner's sequences may hold,
    each sequence counted separately; further sequences wait. None: no bound.
    """

    owner: str = ""
    weight: int = 1
    most: int | None = None
    guest_cpu_s: float | None = None
    pages: int | None = None


NOBODY: Final = Share()
"""The share of requests without an owner: they count as requests of one user."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A prompt, and how to continue. `prompt`: text, which `Engine.tokenize` tokenizes, or tokens.

    `score_from`: also score the prompt's tokens from this index on, by the log-softmax of the model's logits, without
    bias and temperature, with the k likeliest tokens (k = `sampling.logprobs`). The first token of a prompt has no
    log-probability, because no token precedes.

    `pooling`: the request wants an embedding of the prompt, and no output: the event before the FinishEvent is an
    EmbeddingEvent. The sampling parameters have no effect then.

    `priority`: lower is sooner. One step of priority is worth a minute of waiting. From `BACKGROUND_PRIORITY` on, the
    request is computed only if nothing else has work.

    `cache_salt`: requests share computed tokens only with requests of the same salt. The time to an answer and the
    usage reveal shared beginnings, so requests of different users need different salts to hide their prompts.

    `share`: the user, for fair shares of the engine.

    `prediction`: tokens that the output probably has, such as the code before an edit. An engine that drafts
    (`EngineConfig.speculate`) begins with them: the output comes sooner as far as they are right, and is the same.
    """

    prompt: str | Sequence[TokenId]
    sampling: SamplingParams = field(default_factory=SamplingParams)
    controller: ControllerCall | None = None
    score_from: int | None = None
    pooling: Pooling | None = None
    priority: int = 0
    cache_salt: str | None = None
    share: Share = NOBODY
    prediction: Sequence[TokenId] = ()


class RequestHandle:
    """A submitted request. One thread reads the events, once. Any thread may call `abort`."""

    def __init__(self, seq_id: SeqId, abort: Callable[[SeqId], None]) -> None:
        self.seq_id = seq_id
        self._abort = abort
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._finish: FinishEvent | None = None

    def put(self, event: Event) -> None:
        """Add an event. Only the engine calls `put`."""
        self._events.put(event)

    def abort(self) -> None:
        """End the request before its next step, with a FinishEvent. Does nothing after the end of the request."""
        self._abort(self.seq_id)

    def events(self) -> Iterator[Event]:
        """Yield the events, with a wait for the next, up to the FinishEvent."""
        while self._finish is None:
            event = self._events.get()
            if isinstance(event, FinishEvent):
                self._finish = event
            yield event

    def wait(self) -> FinishEvent:
        """Wait for the end of the request, and return its FinishEvent. May be called again."""
        for _ in self.events():
            pass
        assert self._finish is not None
        return self._finish
