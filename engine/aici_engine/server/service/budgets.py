"""What keys use, and their budgets by the minute.

A budget fills again with time, a minute's worth a minute. A request is refused while nothing is left. What a request
uses is known later, so a budget may be overdrawn: then the key waits until the debt is paid.
"""

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from aici_base.errors import RateLimitError
from aici_engine.server.service.key_counts import KeyCounts


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
    """The use and the budgets of all keys, by name. `counts`: what is left of the budgets."""

    def __init__(self, counts: KeyCounts) -> None:
        self._counts = counts
        self.used: defaultdict[str, KeyUse] = defaultdict(KeyUse)

    async def check(self, name: str, budgets: Mapping[str, float | None]) -> None:
        """Raise RateLimitError if the key `name` has used up one of its budgets."""
        for budget, bucket in (await self._counts.take(name, budgets)).items():
            if bucket.left <= 0:
                unit, hint = _TEXTS[budget]
                wait_s = bucket.wait_s(min(1.0, bucket.per_minute / 60))
                raise RateLimitError(
                    f"the key {name} may use {bucket.per_minute:g} {unit} a minute ({budget}):"
                    f" {_shown(bucket.left)} left",
                    hint=f"{hint}; try again in {math.ceil(wait_s)} s",
                    retry_after_s=wait_s,
                )

    def spend_tokens(self, name: str, number: int) -> None:
        """Count tokens of prompts and answers."""
        self.used[name].tokens += number
        self._counts.spend(name, "tokens_per_minute", number)

    def spend_guest_time(self, times: Mapping[str, float]) -> None:
        """Count seconds of processor time of controllers, by key."""
        for name, used_s in times.items():
            self.used[name].guest_cpu_s += used_s
            self._counts.spend(name, "guest_cpu_per_minute", used_s)

    def used_by(self, name: str) -> dict[str, float]:
        """Return what a key has used since the server started."""
        used = self.used[name]
        return {"tokens": used.tokens, "guest_cpu_seconds": used.guest_cpu_s}

    async def left(self, name: str) -> dict[str, float]:
        """Return what is left of the budgets of a key."""
        return {budget: left for budget, left in (await self._counts.left(name)).items() if budget in _TEXTS}


def _shown(left: float) -> str:
    return f"{left:.1f}" if left < -0.05 else "0"
