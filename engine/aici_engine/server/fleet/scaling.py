"""Decides when a fleet grows and shrinks: a pure function of the load over time."""

from dataclasses import dataclass, replace
from typing import Final

UP_WAIT_S: Final = 1.0
UP_AFTER_S: Final = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetLoad:
    """The load at a moment. `num_replicas`: in service, or starting. `num_open`: sequences that wait or run.
    `oldest_wait_s`: of the sequences without a part of an answer; 0 without such sequences."""

    at_s: float
    num_replicas: int
    num_open: int
    oldest_wait_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Trend:
    """The memory of the policy: since when sequences wait for too long, and since when a replica has been idle."""

    late_since_s: float | None = None
    idle_since_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingRules:
    """A further replica, up to `most`, if for `up_after_s` seconds the oldest sequence has waited for `up_wait_s` and
    more, with more sequences than replicas. A replica less, down to `least`, after `down_after_s` seconds with fewer
    sequences than replicas."""

    least: int
    most: int
    up_wait_s: float = UP_WAIT_S
    up_after_s: float = UP_AFTER_S
    down_after_s: float = 15.0

    def decide(self, trend: Trend, seen: FleetLoad) -> tuple[Trend, int]:
        """Return the new trend, and the number of replicas to add: 1, 0 or -1. After a change, the times begin anew."""
        is_late = seen.oldest_wait_s >= self.up_wait_s and seen.num_open > seen.num_replicas
        is_idle = seen.num_open < seen.num_replicas
        trend = replace(
            trend,
            late_since_s=_since(trend.late_since_s, seen.at_s) if is_late else None,
            idle_since_s=_since(trend.idle_since_s, seen.at_s) if is_idle else None,
        )
        if seen.num_replicas < self.least:
            return Trend(), 1
        if _has_lasted(trend.late_since_s, seen.at_s, self.up_after_s) and seen.num_replicas < self.most:
            return Trend(), 1
        if _has_lasted(trend.idle_since_s, seen.at_s, self.down_after_s) and seen.num_replicas > self.least:
            return Trend(), -1
        return trend, 0


def _since(since_s: float | None, now_s: float) -> float:
    return now_s if since_s is None else since_s


def _has_lasted(since_s: float | None, now_s: float, seconds: float) -> bool:
    return since_s is not None and now_s - since_s >= seconds
