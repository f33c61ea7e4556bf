"""The time of steps by phase. Always on: the cost is a few microseconds a step."""

import statistics
import time
from collections import deque
from typing import TypedDict

PHASES = ("inbox", "admit", "round", "decide", "ask", "batch", "forward", "answers", "sample", "commit", "output")
"""The phases in the order of a step. `round`, `ask` and `answers` talk to the controller runtime; `answers` also waits
for guests slower than the model. `decide` includes the passes of a draft model. `sample` includes masks and, on a GPU,
the wait for the end of `forward`."""
_MAX_STEPS = 1024


class StepProfile(TypedDict):
    """Medians over steps, in seconds of wall time. `overhead_s`: all phases except the forward pass.

    Medians, because a busy machine spoils a few steps, but not most.
    """

    num_steps: int
    phases_s: dict[str, float]
    overhead_s: float


class Profile:
    """Written by the engine's thread alone. Any thread may call `read`.

    `num_steps`, `steps_s`, `forward_s`: of all steps so far; `steps_s` includes `forward_s`.
    """

    def __init__(self) -> None:
        self.num_steps = 0
        self.steps_s = self.forward_s = 0.0
        self._steps: deque[dict[str, float]] = deque(maxlen=_MAX_STEPS)
        self.begin()

    def begin(self) -> None:
        """Begin a step, and forget a step without an end."""
        self._now = dict.fromkeys(PHASES, 0.0)
        self._last = time.perf_counter()

    def lap(self, phase: str) -> None:
        """Count the time since the last call as `phase`."""
        time_s = time.perf_counter()
        self._now[phase] += time_s - self._last
        self._last = time_s

    def end(self) -> None:
        """End the step. A step without a forward pass does not count."""
        if self._now["forward"]:
            self._steps.append(self._now)
            self.num_steps += 1
            self.steps_s += sum(self._now.values())
            self.forward_s += self._now["forward"]

    def read(self) -> StepProfile:
        """Return the profile of the steps since the last call, at most the last thousand steps."""
        told, self._steps = self._steps, deque(maxlen=_MAX_STEPS)
        steps = list(told)  # the engine's thread may append meanwhile, so copy at once
        overheads = [sum(step.values()) - step["forward"] for step in steps]
        return StepProfile(
            num_steps=len(steps),
            phases_s={phase: _median([step[phase] for step in steps]) for phase in PHASES},
            overhead_s=_median(overheads),
        )


def _median(values: list[float]) -> float:
    return statistics.median(values) if values else 0.0
