"""How far the keys and values of a sequence are computed."""

from dataclasses import dataclass, replace
from enum import Enum, auto


class Phase(Enum):
    """`NEW`: not in the queue yet. `WAITING`: for admission. `RUNNING`: admitted, may hold pages."""

    NEW = auto()
    WAITING = auto()
    RUNNING = auto()
    ENDED = auto()


@dataclass(slots=True)
class CacheProgress:
    """Changed by `aici_engine.scheduler` alone, except by `forget_beyond`.

    `num_computed`: tokens with keys and values in the cache. `num_lost`: the largest `num_computed` at a preemption.
    `num_reused`: prompt tokens found in the cache, computed for other sequences. `last_plan`: the number of the last
    step with the sequence, counted by the scheduler.
    """

    phase: Phase
    num_computed: int = 0
    num_lost: int = 0
    num_reused: int = 0
    last_plan: int = 0

    def fork(self) -> "CacheProgress":
        """Return a copy that has reused nothing."""
        return replace(self, num_reused=0)

    def forget_beyond(self, num_tokens: int) -> None:
        """Only the first `num_tokens` tokens are left of the sequence."""
        self.num_computed = min(self.num_computed, num_tokens)
