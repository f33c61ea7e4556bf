"""The last hour of a model in intervals of five seconds: tokens, waiting times, streams. In memory, without a clock of
its own: only events advance the history, so an idle server does nothing."""

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final

INTERVAL_S: Final = 5
NUM_INTERVALS: Final = 720
_STEPS_PER_E: Final = 10
"""Times are kept in classes whose limits differ by a factor of e ** 0.1, so that a percentile is right within 5 %."""
_LEAST_S: Final = 1e-6


class Times(Counter[int]):
    """How many times fell into each class."""

    def add(self, seconds: float) -> None:
        self[math.floor(math.log(max(seconds, _LEAST_S)) * _STEPS_PER_E)] += 1

    def percentile(self, share: float) -> float | None:
        """Return the time in seconds that `share` of the times do not exceed; None without times."""
        left = share * self.total()
        for each, number in sorted(self.items()):
            left -= number
            if left <= 0:
                return math.exp((each + 0.5) / _STEPS_PER_E)
        return None


@dataclass(slots=True)
class _Interval:
    """`streams`, `waiting`: the most open streams, and the most streams without a first token, at a moment of the
    interval."""

    number: int
    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    ended: int = 0
    streams: int = 0
    waiting: int = 0
    first_token: Times = field(default_factory=Times)
    inter_token: Times = field(default_factory=Times)


class History:
    """The history of one model."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._ring: list[_Interval | None] = [None] * NUM_INTERVALS
        self._open = self._waiting = 0
        self._last: _Interval | None = None

    def began(self) -> None:
        """A stream was opened."""
        self._open += 1
        self._waiting += 1
        now = self._now()
        now.streams = max(now.streams, self._open)
        now.waiting = max(now.waiting, self._waiting)

    def first_token(self, waited_s: float) -> None:
        now = self._now()
        self._waiting -= 1
        now.output_tokens += 1
        now.first_token.add(waited_s)

    def token(self, gap_s: float | None) -> None:
        """A further token came. `gap_s`: the time since the token before; None for a forced token."""
        now = self._now()
        now.output_tokens += 1
        if gap_s is not None:
            now.inter_token.add(gap_s)

    def ended(self, *, prompt_tokens: int, cached_tokens: int, has_begun: bool) -> None:
        """A stream ended. `has_begun`: the stream had a first token."""
        now = self._now()
        now.ended += 1
        now.prompt_tokens += prompt_tokens
        now.cached_tokens += cached_tokens
        self._open -= 1
        self._waiting -= not has_begun

    def intervals(self) -> Iterable[dict[str, Any]]:
        """Yield the intervals of the last hour with events, oldest first."""
        oldest = self._number() - NUM_INTERVALS
        kept = (each for each in self._ring if each is not None and each.number > oldest)
        for each in sorted(kept, key=lambda each: each.number):
            yield {
                "time": each.number * INTERVAL_S,
                "prompt_tokens": each.prompt_tokens,
                "cached_tokens": each.cached_tokens,
                "output_tokens": each.output_tokens,
                "ended": each.ended,
                "streams": each.streams,
                "waiting": each.waiting,
                "first_token_s": _percentiles(each.first_token),
                "inter_token_s": _percentiles(each.inter_token),
            }

    def _now(self) -> _Interval:
        now_s = self._clock()
        if self._last is not None and 0 <= now_s - self._last.number * INTERVAL_S < INTERVAL_S:
            return self._last
        number = int(now_s // INTERVAL_S)
        place = number % NUM_INTERVALS
        now = self._ring[place]
        if now is None or now.number != number:
            now = self._ring[place] = _Interval(number, streams=self._open, waiting=self._waiting)
        self._last = now
        return now

    def _number(self) -> int:
        return int(self._clock() // INTERVAL_S)


def _percentiles(times: Times) -> dict[str, float | None]:
    return {"p50": times.percentile(0.5), "p99": times.percentile(0.99)}
