"""What the limits of API keys are counted against: buckets that fill again with time, and sequences at a time."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol


@dataclass(slots=True)
class Bucket:
    """`left` at the time `at`, of `per_minute` at most."""

    per_minute: float
    left: float
    at: float

    def refill(self, per_minute: float, now: float) -> None:
        """Take over the bound, which may have changed, and what the time since the last call adds."""
        self.per_minute = per_minute
        self.left = min(per_minute, self.left + max(0.0, now - self.at) * per_minute / 60)
        self.at = now

    def wait_s(self, amount: float) -> float:
        """Return the seconds until `amount` is left."""
        return max(0.0, (amount - self.left) * 60 / self.per_minute)


class KeyCounts(Protocol):
    """Counts of keys, by the name of the key. `limit`: the name of a limit by the minute.

    Used on the event loop only. Of a counter that other processes share, the methods that are awaited may raise
    UnavailableError, and the others write a little later.
    """

    async def take(self, name: str, limits: Mapping[str, float | None], amount: float = 0) -> dict[str, Bucket]:
        """Refill the buckets of `limits`, new buckets to the brim, and take `amount` from each with so much left.
        Forget the buckets whose limit is None. Return the other buckets as they were before `amount` was taken."""

    def spend(self, name: str, limit: str, amount: float) -> None:
        """Take `amount`, also if less is left. Without a bucket there is no effect."""

    async def left(self, name: str) -> dict[str, float]:
        """Return what is left of the buckets of a key, by limit; 0 for a debt."""

    async def enter(self, name: str, number: int, most: int | None) -> bool:
        """Count sequences that begin. Return False, and count nothing, if the key would have more than `most`. Without
        `most`, the count does not fail."""

    def leave(self, name: str, number: int) -> None:
        """Count sequences that have ended."""


class LocalCounts:
    """The counts of one process. Implements `KeyCounts`."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._buckets: dict[tuple[str, str], Bucket] = {}
        self._running: dict[str, int] = {}

    async def take(self, name: str, limits: Mapping[str, float | None], amount: float = 0) -> dict[str, Bucket]:
        now, before = self._clock(), {}
        for limit, per_minute in limits.items():
            if per_minute is None:
                self._buckets.pop((name, limit), None)
                continue
            bucket = self._buckets.setdefault((name, limit), Bucket(per_minute, per_minute, now))
            bucket.refill(per_minute, now)
            before[limit] = replace(bucket)
            if bucket.left >= amount:
                bucket.left -= amount
        return before

    def spend(self, name: str, limit: str, amount: float) -> None:
        if (bucket := self._buckets.get((name, limit))) is not None:
            bucket.left -= amount

    async def left(self, name: str) -> dict[str, float]:
        now, left = self._clock(), {}
        for (owner, limit), bucket in self._buckets.items():
            if owner == name:
                seen = replace(bucket)
                seen.refill(bucket.per_minute, now)
                left[limit] = max(0.0, seen.left)
        return left

    async def enter(self, name: str, number: int, most: int | None) -> bool:
        running = self._running.get(name, 0) + number
        if most is not None and running > most:
            return False
        self._running[name] = running
        return True

    def leave(self, name: str, number: int) -> None:
        self._running[name] -= number
        if not self._running[name]:
            del self._running[name]
