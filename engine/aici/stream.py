"""The events of a request, in real time."""

import queue
import weakref
from collections.abc import Iterator
from typing import Generic, Self, TypeVar

from aici.backend import Abort, Backend, Call
from aici.constraints import Constraint, Messages
from aici.errors import AiciError
from aici.results import Collector, Result
from aici_engine.events import Event, FinishEvent, TokenEvent

T = TypeVar("T")


class Stream(Generic[T]):
    """An iterator over the events of a running request. The last event is a FinishEvent.

    A failed request raises the error after the last event. A stream dropped or closed half-way, or left as a context
    manager, ends the request. A stream belongs to one thread.

    >>> for event in llm.stream("Once upon a time", max_tokens=2):
    ...     print(type(event).__name__)
    AcceptedEvent
    TokenEvent
    TokenEvent
    FinishEvent
    """

    def __init__(self, backend: Backend, call: Call, prompt: str | Messages, constraint: Constraint[T]) -> None:
        events: queue.SimpleQueue[Event | AiciError] = queue.SimpleQueue()
        self._events = events
        self._backend = backend  # dropping the LLM must not end a stream
        self._collector = Collector(prompt, constraint)
        self._raised: AiciError | None = None
        self._abort: Abort = backend.start(call, events.put)
        weakref.finalize(self, self._abort).atexit = False

    def __iter__(self) -> Iterator[Event]:
        try:
            while self._collector.result is None:
                event = self._next()
                yield event
                if isinstance(event, FinishEvent) and (result := self._collector.result) and result.error:
                    raise result.error
        finally:
            self.close()

    def text(self) -> Iterator[str]:
        r"""Yield new pieces of the text, never empty. After a backtrack, a piece begins with ` ↩ `.

        >>> for piece in llm.stream("1, 2, 3", max_tokens=4).text():
        ...     print(repr(piece))
        ','
        ' '
        '4'
        ','
        """
        for event in self:
            piece = (
                event.text if isinstance(event, TokenEvent) else event.tail if isinstance(event, FinishEvent) else ""
            )
            if piece:
                yield piece

    def result(self) -> Result[T]:
        """Read the remaining events and return the result. `Result.error` holds a failure of the request.

        >>> llm.stream("1, 2, 3", max_tokens=2).result().usage.sampled_tokens
        2
        """
        try:
            while self._collector.result is None:
                self._next()
        finally:
            self.close()
        return self._collector.result

    def close(self) -> None:
        """End the request. Idempotent."""
        self._abort()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _next(self) -> Event:
        if self._raised is not None:
            raise self._raised
        event = self._events.get()
        if isinstance(event, AiciError):
            self._raised = event
            raise event
        self._collector.add(event)
        return event
