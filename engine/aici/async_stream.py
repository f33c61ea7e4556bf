"""Requests for asyncio: events come from other threads and are read on the event loop."""

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from typing import Generic, Self, TypeAlias, TypeVar

from aici.backend import Abort, Backend, Call
from aici.constraints import Constraint, Messages
from aici.errors import AiciError
from aici.local import threaded
from aici.progress import Progress
from aici.results import Collector, Result
from aici_engine.events import Event, FinishEvent, TokenEvent

T = TypeVar("T")
_Events: TypeAlias = "asyncio.Queue[tuple[int, Event | AiciError]]"


class AsyncStream(Generic[T]):
    """An asynchronous iterator over the events of a request. The request begins with the iteration. See `Stream`."""

    def __init__(self, backend: Backend, call: Call, prompt: str | Messages, constraint: Constraint[T]) -> None:
        self._backend = backend
        self._call = call
        self._collector = Collector(prompt, constraint)
        self._begun: tuple[_Events, list[Abort]] | None = None

    async def __aiter__(self) -> AsyncIterator[Event]:
        try:
            while self._collector.result is None:
                event = await self._next()
                yield event
                if isinstance(event, FinishEvent) and (result := self._collector.result) and result.error:
                    raise result.error
        finally:
            self.close()

    async def text(self) -> AsyncIterator[str]:
        """Yield new pieces of the text, as `Stream.text` does."""
        async with contextlib.aclosing(aiter(self)) as events:  # type: ignore[type-var]  # __aiter__ is a generator
            async for event in events:
                if isinstance(event, TokenEvent) and event.text:
                    yield event.text
                elif isinstance(event, FinishEvent) and event.tail:
                    yield event.tail

    async def result(self) -> Result[T]:
        """Read the remaining events and return the result. `Result.error` holds a failure of the request."""
        try:
            while self._collector.result is None:
                await self._next()
        finally:
            self.close()
        return self._collector.result

    def close(self) -> None:
        """End the request. Idempotent."""
        for abort in self._begun[1] if self._begun else ():
            abort()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.close()

    async def _next(self) -> Event:
        if self._begun is None:
            self._begun = await _begin(self._backend, [self._call])
        _, event = await self._begun[0].get()
        if isinstance(event, AiciError):
            raise event
        self._collector.add(event)
        return event


async def run_batch(
    backend: Backend,
    calls: Sequence[tuple[str | Messages, Call]],
    constraint: Constraint[T],
    *,
    progress: bool | None,
) -> list[Result[T]]:
    """As `aici.batch.run_batch`. A cancelled task ends the requests."""
    collectors = [Collector(prompt, constraint) for prompt, _ in calls]
    events, aborts = await _begin(backend, [call for _, call in calls])
    try:
        with Progress(len(calls), progress) as line:
            num_done = 0
            while num_done < len(calls):
                number, event = await events.get()
                if isinstance(event, AiciError):
                    raise event
                collectors[number].add(event)
                if collectors[number].result is not None:
                    num_done += 1
                    line.update(num_done)
    finally:
        for abort in aborts:
            abort()
    return [collector.ended for collector in collectors]


async def in_own_thread(work: Callable[[], T]) -> T:
    """Return what `work` returns, from a thread of its own: asyncio's threads are few, and `work` may take long."""
    return await asyncio.wrap_future(threaded(work))


async def _begin(backend: Backend, calls: Sequence[Call]) -> tuple[_Events, list[Abort]]:
    """Start requests in a thread: tokenizing, compiling and reading files would hold up the event loop."""
    loop = asyncio.get_running_loop()
    events: _Events = asyncio.Queue()
    aborts: list[Abort] = []
    cancelled = threading.Event()

    def put(number: int, event: Event | AiciError) -> None:
        with contextlib.suppress(RuntimeError):  # the event loop was closed before the request ended
            loop.call_soon_threadsafe(events.put_nowait, (number, event))

    def end() -> None:
        for abort in aborts:
            abort()

    def start() -> None:
        try:
            for number, call in enumerate(calls):
                if not cancelled.is_set():
                    aborts.append(backend.start(call, partial(put, number)))
        except BaseException:
            end()
            raise
        if cancelled.is_set():
            end()

    try:
        await asyncio.to_thread(start)
    except asyncio.CancelledError:
        cancelled.set()
        end()
        raise
    return events, aborts
