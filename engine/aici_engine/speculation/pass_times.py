"""How long a forward pass takes, by its number of tokens: measured while the engine runs."""

from bisect import bisect_left
from dataclasses import dataclass
from typing import Final

_FIRST_SLOPE: Final = 0.1
_MOST_SLOPE: Final = 0.8
"""While passes of only one size are measured, a further token is taken to add this part of a token's share of the pass,
`_FIRST_SLOPE` for a single sequence and more for each sequence: reading the weights is soon the smaller part."""
_IF_FASTER: Final = 0.3
_IF_SLOWER: Final = 0.1
"""The weight of the newest pass in the moving average, if the pass was slower than the average. A busy machine makes
single passes slow, never fast."""
_HOPE: Final = 0.97
"""A pass of a size that is not measured is taken for faster than its neighbours say, so that it is tried once: by
less than the least gain of drafts, so that nothing is tried where all tokens cost the same."""
_MOST: Final = 1.5
"""A pass counts at most so many times the expected time."""
_FRESH: Final = 128
"""A measurement is forgotten after so many passes."""
_MOST_WEIGHT: Final = 10
"""More passes of a size make its time no more certain: old passes have little part in the moving average."""


@dataclass(slots=True)
class _Size:
    """The passes of one size: their moving average, how many, and the number of the last pass."""

    time_s: float
    num_passes: int
    last: int


class PassTimes:
    """Times of passes without prompts. All times are in seconds. `num_passes`: recorded so far.

    A pass of more tokens takes at least as long as a pass of fewer tokens. If measurements say otherwise, the times of
    the sizes in question are averaged (isotonic regression), so that noise makes no size look cheap.
    """

    def __init__(self) -> None:
        self._passes: dict[int, _Size] = {}
        self.num_passes = 0
        self._sizes: list[int] = []
        self._times: list[float] = []
        """Sizes and their times, both rising. Empty if a pass was recorded since."""

    def record(self, num_tokens: int, time_s: float) -> None:
        self.num_passes += 1
        known = self._passes.get(num_tokens)
        guess = self.expected_s(num_tokens) if known is None else known.time_s
        if guess is not None:
            time_s = min(time_s, _MOST * guess)
        if known is None:
            self._passes[num_tokens] = _Size(time_s, 1, self.num_passes)
        else:
            known.time_s += (_IF_FASTER if time_s < known.time_s else _IF_SLOWER) * (time_s - known.time_s)
            known.num_passes += 1
            known.last = self.num_passes
        if self.num_passes % _FRESH == 0:
            oldest = self.num_passes - _FRESH
            self._passes = {size: passes for size, passes in self._passes.items() if passes.last > oldest}
        self._sizes = []

    def age(self, num_tokens: int) -> int | None:
        """Return the number of passes since the last pass of this size; None without such a pass."""
        passes = self._passes.get(num_tokens)
        return None if passes is None else self.num_passes - passes.last

    def expected_s(self, num_tokens: int) -> float | None:
        """Return the expected time; None if nothing is known of passes as small."""
        if not self._sizes:
            self._fit()
        sizes, times = self._sizes, self._times
        at = bisect_left(sizes, num_tokens)
        if at < len(sizes) and sizes[at] == num_tokens:
            return times[at]
        if at == 0:
            return None
        below, below_s = sizes[at - 1], times[at - 1]
        if at < len(sizes):
            slope = (times[at] - below_s) / (sizes[at] - below)
            return max(below_s, _HOPE * (below_s + slope * (num_tokens - below)))
        if at > 1:
            slope = (below_s - times[0]) / (below - sizes[0])
        else:
            slope = min(_MOST_SLOPE, _FIRST_SLOPE * below) * below_s / below
        return below_s + slope * (num_tokens - below)

    def _fit(self) -> None:
        """Average the times of neighbours until the times rise with the sizes ("pool adjacent violators")."""
        self._sizes = sorted(self._passes)
        pools: list[tuple[float, int, int]] = []
        """Time, weight and number of sizes."""
        for size in self._sizes:
            passes = self._passes[size]
            time_s, weight, num_sizes = passes.time_s, min(passes.num_passes, _MOST_WEIGHT), 1
            while pools and pools[-1][0] > time_s:
                pool_s, pool_weight, pool_sizes = pools.pop()
                time_s = (weight * time_s + pool_weight * pool_s) / (weight + pool_weight)
                weight, num_sizes = weight + pool_weight, num_sizes + pool_sizes
            pools.append((time_s, weight, num_sizes))
        self._times = [time_s for time_s, _, num_sizes in pools for _ in range(num_sizes)]
