"""How long the steps of a pipeline take, and where the time goes."""

from collections import defaultdict
from typing import Final, NamedTuple

_FIRST_LIMIT_S: Final = 60.0
_LEAST_LIMIT_S: Final = 5.0
_PATIENCE: Final = 20.0
_IDLE_S: Final = 0.05


class StepSpan(NamedTuple):
    """One step at the driver. `began`, `arrived`, `ended`: when the step left, when the states came back, and when the
    logits were ready. `alone`: no other step was in flight when this step began."""

    num_tokens: int
    began: float
    arrived: float
    ended: float
    alone: bool


class PipelineTimes:
    """Sums over all steps, in seconds.

    `computed_s`, `waited_s`: by stage; the driver's own range is stage -1. Waiting of an idle pipeline does not count.
    `hop_s`: the time of the `num_hop_steps` steps that were alone in the pipeline, without computing: messages, and
    waking processes.
    """

    def __init__(self) -> None:
        self.num_steps = 0
        self.num_tokens = 0
        self.computed_s: defaultdict[int, float] = defaultdict(float)
        self.waited_s: defaultdict[int, float] = defaultdict(float)
        self.hop_s = 0.0
        self.num_hop_steps = 0
        self._slowest_s = 0.0
        self._last_end = 0.0

    def add(self, span: StepSpan, stages: list[tuple[int, int, int]]) -> None:
        """`stages`: number, microseconds waited and microseconds computed of every stage."""
        self.num_steps += 1
        self.num_tokens += span.num_tokens
        was_idle = span.began - self._last_end > _IDLE_S
        for stage, waited_us, computed_us in stages:
            self.computed_s[stage] += computed_us / 1e6
            if not was_idle:
                self.waited_s[stage] += waited_us / 1e6
        self.computed_s[-1] += span.ended - span.arrived
        if span.alone:
            self.num_hop_steps += 1
            self.hop_s += span.arrived - span.began - sum(computed_us for *_, computed_us in stages) / 1e6
        self._slowest_s = max(self._slowest_s, (span.arrived - span.began) / span.num_tokens)
        self._last_end = span.ended

    def limit_s(self, num_tokens: int) -> float:
        """Return how long the states of a step may be away before the pipeline counts as lost.

        A step of one token reads all weights, so the slowest time per token is a generous measure for long steps.
        """
        if not self.num_steps:
            return _FIRST_LIMIT_S
        return max(_LEAST_LIMIT_S, _PATIENCE * self._slowest_s * num_tokens)
