"""The stream of a sequence: the events in the order of arrival, for a single reader."""

import asyncio
import itertools
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Protocol, Self, TypeAlias

import msgspec

from aici_base.errors import AiciError, TimedOutError
from aici_engine.events import CONTROLLER_FAILURES, FinishReason
from aici_engine.server.link import wire
from aici_engine.server.link.suspects import digest

_FAILURES = {FinishReason.ABORT: "the request was ended by the server", **CONTROLLER_FAILURES}
_TURN_EVENTS = 64
"""So many events are read without a turn of the event loop for others."""

Watch: TypeAlias = Callable[[wire.StreamOut], None]


def unwatched(_: wire.StreamOut) -> None: ...


class StreamOwner(Protocol):
    """Ends streams: the client of the engine that computes them."""

    def abort(self, number: int) -> None: ...

    def fail(self, stream: "EngineStream", why: AiciError) -> None: ...


class EngineStream:
    """The events of a submitted sequence. A context manager: the exit aborts a running sequence.

    `watch` is called with every event when the event arrives, not when it is read. A whole stream gives its events at
    its end, all together, and is watched as if it had run once. `submit`: what was asked, as long as the stream can
    begin again: it has given nothing, and has neither ended nor been aborted. `num_deaths`: of engines and runtimes
    that computed the stream. `has_begun`: the attempt of now has an event. `to_compute`: tokens of the
    prompt that no cache has, as far as is known. `opened_s`: when, on the monotonic clock.
    """

    def __init__(self, client: "StreamOwner", submit: wire.Submit, watch: Watch, *, is_whole: bool = False) -> None:
        self._client = client
        self._kept: list[wire.StreamOut] | None = [] if is_whole else None
        self._num_watched = 0
        self._digest = b""
        self.has_begun = False
        self.submit: wire.Submit | None = submit
        self.num_deaths = 0
        self.number = submit.stream
        self.prompt_len = self.to_compute = len(submit.prompt)
        self.opened_s = time.monotonic()
        self.finish: wire.FinishOut | None = None
        self._events: deque[wire.StreamOut] = deque()
        self._arrived = asyncio.Event()
        self._expiry: asyncio.TimerHandle | None = None
        self._watch = watch
        self._is_accepted = False

    def put(self, event: wire.StreamOut) -> None:
        if isinstance(event, wire.AcceptedOut):
            if self._is_accepted:
                return
            self._is_accepted = True
        elif self.submit is not None and (self._kept is None or isinstance(event, wire.FinishOut)):
            self.drop_submit()
        self.has_begun = self.has_begun or not isinstance(event, wire.AcceptedOut)
        if self._kept is None:
            self._watch(event)
            self._events.append(event)
            self._arrived.set()
            return
        self._kept.append(event)
        if isinstance(event, wire.FinishOut) or len(self._kept) > self._num_watched:
            self._num_watched += 1
            self._watch(event)
        if isinstance(event, wire.FinishOut):
            self._events.extend(self._kept)
            self._arrived.set()

    def drop_submit(self) -> None:
        """Let go of what was asked, which may have megabytes, and keep its digest."""
        if self.submit is not None:
            self._digest, self.submit = digest(self.submit), None

    @property
    def digest(self) -> bytes:
        """The digest of what was asked."""
        return self._digest if self.submit is None else digest(self.submit)

    def renumber(self, number: int) -> None:
        """Have another number from now on: engines send no further events to the stream by the old number."""
        self.number = number
        if self.submit is not None:
            self.submit = msgspec.structs.replace(self.submit, stream=number)

    def begin_again(self) -> None:
        """Forget the events of an attempt that the stream has not given. `submit` must not be None."""
        self.num_deaths += 1
        self.has_begun = False
        if self._kept:
            self._kept = [event for event in self._kept if isinstance(event, wire.AcceptedOut)]

    async def __aiter__(self) -> AsyncIterator[wire.StreamOut]:
        """Yield every event, FinishOut last. A failed stream does not raise here: see `finish.failure`."""
        for number in itertools.count(1):
            if self.finish is not None:
                return
            if number % _TURN_EVENTS == 0:
                await asyncio.sleep(0)
            while not self._events:
                self._arrived.clear()
                await self._arrived.wait()
            event = self._events.popleft()
            if isinstance(event, wire.FinishOut):
                self.finish = event
            yield event

    async def groups(self) -> AsyncIterator[list[wire.StreamOut]]:
        """Yield the same events in lists: events that arrived together, with at most one sampled token per fork.

        A reader that keeps up gets one or two lists per engine step: forced tokens arrive before the forward pass.
        """
        group: list[wire.StreamOut] = []
        sampled: set[int] = set()
        async for event in self:
            fork, inner = (event.fork, event.event) if isinstance(event, wire.ForkOut) else (0, event)
            is_sample = isinstance(inner, wire.TokenOut) and not inner.forced
            if is_sample and fork in sampled:
                yield group
                group, sampled = [], set()
            group.append(event)
            if is_sample:
                sampled.add(fork)
            if not self._events:
                yield group
                group, sampled = [], set()

    def result(self) -> wire.FinishOut:
        """Return the FinishOut of a stream that has ended.

        Raises the failure of the stream, or AiciError if the sequence was aborted, deadlocked or out of fuel.
        """
        assert self.finish is not None
        if self.finish.failure is not None:
            raise self.finish.failure.error()
        if self.finish.reason in _FAILURES:
            raise AiciError(_FAILURES[self.finish.reason])
        return self.finish

    def abort(self) -> None:
        """End the sequence before the engine's next step. Idempotent."""
        self._client.abort(self.number)

    def fail(self, why: AiciError) -> None:
        """End the stream with `why`, without waiting for the engine. Idempotent."""
        self._client.fail(self, why)

    def expire_after(self, seconds: float) -> None:
        """Fail the stream with TimedOutError after `seconds`."""
        why = TimedOutError(f"the request took longer than {seconds:g} s")
        # The stream may have another client by then.
        self._expiry = asyncio.get_running_loop().call_later(seconds, lambda: self._client.fail(self, why))

    def move_to(self, client: "StreamOwner") -> None:
        """Record that another client has the stream now. Only clients call this method."""
        self._client = client

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        if self._expiry is not None:
            self._expiry.cancel()
        self.abort()
