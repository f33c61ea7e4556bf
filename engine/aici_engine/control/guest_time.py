"""The processor time of guests, by owner, and the owners who have used up their budget.

A budget fills again with time, a minute's worth a minute. A budget may be overdrawn, because the runtime tells the time
once a second. The sequences of an owner with an overdrawn budget still take part in one step of `_SLOWED`.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from aici_engine.request import Share

_SLOWED = 8

GuestTimes = Mapping[str, float]
"""Seconds of processor time, by owner."""


@dataclass(slots=True)
class _Budget:
    """`left_s` at the time `at`."""

    left_s: float
    at: float

    def refill(self, per_minute_s: float, now: float) -> None:
        self.left_s = min(per_minute_s, self.left_s + (now - self.at) * per_minute_s / 60)
        self.at = now


class GuestTime:
    """Used by the engine's thread alone, but for `total_s`. `now`: the clock. `report` gets the times as they become
    known; it must not block."""

    def __init__(self, now: Callable[[], float], report: Callable[[GuestTimes], None] | None = None) -> None:
        self._now = now
        self._report = report
        self._budgets: dict[str, _Budget] = {}
        self._num_asked = 0
        self.total_s = 0.0

    def add(self, times: Mapping[Share, float]) -> None:
        """Count seconds of processor time."""
        by_owner: defaultdict[str, float] = defaultdict(float)
        for share, used_s in times.items():
            by_owner[share.owner] += used_s
            if share.guest_cpu_s is not None:
                budget = self._budgets.setdefault(share.owner, _Budget(share.guest_cpu_s, self._now()))
                budget.refill(share.guest_cpu_s, self._now())
                budget.left_s -= used_s
        self.total_s += sum(by_owner.values())
        if self._report is not None and by_owner:
            self._report(by_owner)

    @property
    def has_budgets(self) -> bool:
        return bool(self._budgets)

    def is_slowed(self, share: Share) -> bool:
        """Return whether the owner has used up the budget."""
        budget = self._budgets.get(share.owner)
        if budget is None or share.guest_cpu_s is None:
            return False
        budget.refill(share.guest_cpu_s, self._now())
        return budget.left_s < 0

    def begin_step(self) -> bool:
        """Return whether sequences of owners with a used up budget sit out this step."""
        self._num_asked += 1
        return self._num_asked % _SLOWED != 0
