"""Where the time of steps goes, phase by phase: cheap enough to be always on, some microseconds a step."""

import statistics
import time
from collections import deque
from typing import TypedDict

PHASES = ("inbox", "admit", "round", "decide", "ask", "batch", "forward", "answers", "sample", "commit", "output")
"""In the order of a step. `round`, `ask` and `answers` talk to the controller runtime, the last of them for as long as
guests take longer than the model; `sample` includes masks and, on a GPU, waiting for the end of `forward`."""
_MAX_STEPS = 1024


class StepProfile(TypedDict):
    """Medians over steps, in seconds of the clock on the wall. `overhead_s`: of all phases but the forward pass.

    They are medians because a neighbour on the machine spoils some steps, not the most.
    """

    num_steps: int
    phases_s: dict[str, float]
    overhead_s: float


class Profile:
    """Written by the engine's thread alone; `read` may be called from any."""

    def __init__(self) -> None:
        self._steps: deque[dict[str, float]] = deque(maxlen=_MAX_STEPS)
        self.begin()

    def begin(self) -> None:
        """A step: what was before, of a step that was not ended, is forgotten."""
        self._now = dict.fromkeys(PHASES, 0.0)
        self._last = time.perf_counter()

    def lap(self, phase: str) -> None:
        """All since the last call was `phase`."""
        time_s = time.perf_counter()
        self._now[phase] += time_s - self._last
        self._last = time_s

    def end(self) -> None:
        """Steps that computed nothing do not count."""
        if self._now["forward"]:
            self._steps.append(self._now)

    def read(self) -> StepProfile:
        """Of the steps since it was last read, or the last thousand of them."""
        told, self._steps = self._steps, deque(maxlen=_MAX_STEPS)
        steps = list(told)  # at once: the other thread may still append to it
        overheads = [sum(step.values()) - step["forward"] for step in steps]
        return StepProfile(
            num_steps=len(steps),
            phases_s={phase: _median([step[phase] for step in steps]) for phase in PHASES},
            overhead_s=_median(overheads),
        )


def _median(values: list[float]) -> float:
    return statistics.median(values) if values else 0.0
