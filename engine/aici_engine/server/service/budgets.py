"""What keys use, and their budgets by the minute.

A budget fills again with time, a minute's worth a minute. A request is refused while nothing is left. What a request
uses is known later, so a budget may be overdrawn: then the key waits until the debt is paid.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from aici_base.errors import RateLimitError


@dataclass(slots=True)
class Bucket:
    """`left` at the time `at`, of `per_minute` at most."""

    per_minute: float
    left: float
    at: float

    def refill(self, per_minute: float, now: float) -> None:
        """Take over the bound, which may have changed, and what the time since the last call adds."""
        self.per_minute = per_minute
        self.left = min(per_minute, self.left + (now - self.at) * per_minute / 60)
        self.at = now

    def wait_s(self, amount: float) -> float:
        """Return the seconds until `amount` is left."""
        return max(0.0, (amount - self.left) * 60 / self.per_minute)


@dataclass(slots=True)
class KeyUse:
    """What a key has used since the server started."""

    tokens: int = 0
    guest_cpu_s: float = 0.0


_TEXTS: Mapping[str, tuple[str, str]] = {
    "tokens_per_minute": ("tokens", "a tokens budget counts prompts and answers"),
    "guest_cpu_per_minute": ("seconds of processor time", "controllers use the time"),
}


class Budgets:
    """The use and the budgets of all keys, by name."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._buckets: dict[tuple[str, str], Bucket] = {}
        self.used: defaultdict[str, KeyUse] = defaultdict(KeyUse)

    def check(self, name: str, budgets: Mapping[str, float | None]) -> None:
        """Raise RateLimitError if the key `name` has used up one of its budgets."""
        now = self._clock()
        for budget, per_minute in budgets.items():
            if per_minute is None:
                self._buckets.pop((name, budget), None)
                continue
            bucket = self._buckets.setdefault((name, budget), Bucket(per_minute, per_minute, now))
            bucket.refill(per_minute, now)
            if bucket.left <= 0:
                unit, hint = _TEXTS[budget]
                wait_s = bucket.wait_s(min(1.0, per_minute / 60))
                raise RateLimitError(
                    f"the key {name} may use {per_minute:g} {unit} a minute ({budget}): {_shown(bucket.left)} left",
                    hint=f"{hint}; try again in {math.ceil(wait_s)} s",
                    retry_after_s=wait_s,
                )

    def spend_tokens(self, name: str, number: int) -> None:
        """Count tokens of prompts and answers."""
        self.used[name].tokens += number
        if (bucket := self._buckets.get((name, "tokens_per_minute"))) is not None:
            bucket.left -= number

    def spend_guest_time(self, times: Mapping[str, float]) -> None:
        """Count seconds of processor time of controllers, by key."""
        for name, used_s in times.items():
            self.used[name].guest_cpu_s += used_s
            if (bucket := self._buckets.get((name, "guest_cpu_per_minute"))) is not None:
                bucket.left -= used_s

    def used_by(self, name: str) -> dict[str, float]:
        """Return what a key has used since the server started."""
        used = self.used[name]
        return {"tokens": used.tokens, "guest_cpu_seconds": used.guest_cpu_s}

    def left(self, name: str) -> dict[str, float]:
        """Return what is left of the budgets of a key."""
        now, left = self._clock(), {}
        for (owner, budget), bucket in self._buckets.items():
            if owner == name:
                bucket.refill(bucket.per_minute, now)
                left[budget] = max(0.0, bucket.left)
        return left


def _shown(left: float) -> str:
    return f"{left:.1f}" if left < -0.05 else "0"
