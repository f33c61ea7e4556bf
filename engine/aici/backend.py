"""What runs requests: an engine in this process (`local`) or a server (`remote`). Both report the same events."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from aici.constraints import Constraint, Messages
from aici.errors import AiciError
from aici_engine.events import Event
from aici_engine.sampling_params import SamplingParams

Sink: TypeAlias = Callable[[Event | AiciError], None]
"""Receives the events of a request, the FinishEvent last, or the error that stands in its place; from any thread."""
Abort: TypeAlias = Callable[[], None]
"""Ends a request. Its last event still comes. Idempotent; from any thread; never blocks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request. A `prompt` that is a conversation goes through the model's chat template.

    `patient`: when a server has no room, the request waits and asks again, instead of failing.
    """

    prompt: str | Messages
    sampling: SamplingParams
    constraint: Constraint[Any] | None
    patient: bool = False


class Backend(Protocol):
    """Methods are called from any thread."""

    @property
    def model(self) -> str:
        """Return the name of the model."""

    def start(self, call: Call, sink: Sink) -> Abort:
        """Begin a request. What is wrong with the request is raised, or comes to `sink`."""

    def close(self) -> None:
        """End all requests and release everything. Idempotent."""
