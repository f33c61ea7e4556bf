"""Many requests at a time."""

import queue
from collections.abc import Sequence
from functools import partial
from typing import TypeVar

from aici.backend import Abort, Backend, Call
from aici.constraints import Constraint
from aici.errors import AiciError
from aici.progress import Progress
from aici.results import Collector, Result
from aici_engine.events import Event

T = TypeVar("T")


def run_batch(
    backend: Backend, calls: Sequence[tuple[str, Call]], constraint: Constraint[T], *, progress: bool | None
) -> list[Result[T]]:
    """Return the results in the order of `calls`, pairs of a prompt and a request.

    A raised error, as for a wrong prompt, ends all requests.
    """
    events: queue.SimpleQueue[tuple[int, Event | AiciError]] = queue.SimpleQueue()
    collectors = [Collector(prompt, constraint) for prompt, _ in calls]
    aborts: list[Abort] = []
    try:
        for number, (_, call) in enumerate(calls):
            aborts.append(backend.start(call, partial(_put, events, number)))
        with Progress(len(calls), progress) as line:
            num_done = 0
            while num_done < len(calls):
                number, event = events.get()
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


def _put(events: "queue.SimpleQueue[tuple[int, Event | AiciError]]", number: int, event: Event | AiciError) -> None:
    events.put((number, event))
