"""The short wait for guests that start, before an idle engine begins a step or while a step computes their prompts."""

from collections.abc import Callable
from typing import Final

_LONGEST_S: Final = 0.03


class Gathering:
    """Says how long to wait for guests that start. `clock`: seconds.

    A step with one row takes nearly as long as a step with eight rows. The guests of requests that arrive together
    start one after the other: if the first row began alone, all other rows would wait for a whole step. The wait is at
    most one step: a slow guest costs the other requests no more than they can win.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._until: float | None = None

    def remaining_s(self, *, is_useful: bool, step_s: float) -> float:
        """Return how long to wait from now on, 0.0 to go on.

        `is_useful`: nothing else waits, and guests start. `step_s`: the time of a step.
        """
        if not is_useful:
            self._until = None
            return 0.0
        if self._until is None:
            self._until = self._clock() + min(step_s, _LONGEST_S)
        return max(0.0, self._until - self._clock())
