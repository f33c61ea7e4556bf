"""The seam between the engine's thread and the owner of the sequences' places: our scheduler, or vLLM's."""

from typing import TYPE_CHECKING, Protocol

from aici_engine.sequences.sequence import Sequence

if TYPE_CHECKING:
    from aici_engine.step_plan import StepPlan


class SequenceQueue(Protocol):
    """Owns the waiting and the running sequences. Used by the engine's thread alone.

    `num_preemptions` and `num_reused` (prompt tokens that were in the cache) count since the engine started.
    """

    waiting: list[Sequence]
    running: list[Sequence]
    num_reused: int

    @property
    def num_preemptions(self) -> int: ...

    def add(self, seq: Sequence) -> None:
        """The sequence waits for admission."""

    def remove(self, seq: Sequence) -> None:
        """The sequence has ended. Idempotent."""

    def fork(self, parent: Sequence, child: Sequence) -> None:
        """The child of a running sequence runs, with the parent's computed tokens."""

    def settle(self, seq: Sequence) -> None:
        """Tokens were removed, or no token was appended, in this step."""

    def record_time(self, plan: "StepPlan", time_s: float) -> None:
        """A step took so long."""
