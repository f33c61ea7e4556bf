"""The short wait for guests before an idle vLLM begins a step, or while a step computes their prompts alone."""

from collections.abc import Callable

from aici_engine.early_guests import LONGEST_S


class Gathering:
    """Says how long an idle vLLM waits for guests that start. `clock`: seconds.

    A step with one row takes nearly as long as a step with eight rows. The guests of requests that arrive together
    start one after the other: if the first row began alone, all other rows would wait for a whole step. The wait is at
    most one step: a slow guest costs the other requests no more than they can win.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._until: float | None = None

    def remaining_s(self, *, is_useful: bool, step_s: float) -> float:
        """Return how long to wait before the next step, 0.0 to begin the step.

        `is_useful`: vLLM has no row, and guests start. `step_s`: the time of the last step.
        """
        if not is_useful:
            self._until = None
            return 0.0
        if self._until is None:
            self._until = self._clock() + min(step_s, LONGEST_S)
        return max(0.0, self._until - self._clock())
