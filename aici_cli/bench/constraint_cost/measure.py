"""Decode with and without a constraint, in turn, and compare times and processor times."""

import os
import statistics
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from aici_base.errors import AiciError
from aici_cli.bench.constraint_cost.processor_time import ProcessorTime
from aici_cli.bench.median_interval import median_interval
from aici_engine.config import SamplingParams
from aici_engine.engine import Engine
from aici_engine.events import FinishEvent, TokenEvent
from aici_engine.request import ControllerCall, Request, RequestHandle

PROMPTS: Final = [f"Chapter {number}. It was a quiet morning in the village, and" for number in range(1, 65)]
_EDGE = 2
"""Steps at the beginning and at the end that do not count: sequences and guests start and end in them."""


@dataclass(frozen=True, slots=True)
class Decoded:
    """A batch that was decoded. `ms_per_step` and `cpu_us_per_step` (by process) leave out the first and last steps."""

    ends: list[FinishEvent]
    ms_per_step: float
    cpu_us_per_step: dict[str, float]

    @property
    def tokens(self) -> list[list[int]]:
        return [[token.token_id for token in end.tokens] for end in self.ends]


def decode(engine: Engine, size: int, num_tokens: int, calls: Sequence[ControllerCall | None]) -> Decoded:
    """Decode `num_tokens` greedy tokens of `size` sequences. Raises AiciError if a sequence fails or ends early."""
    # A text that could end would end at different places with and without a constraint.
    never_end: dict[int, float] = dict.fromkeys(engine.eos_tokens, -100.0)
    greedy = SamplingParams(temperature=0.0, max_tokens=num_tokens, logit_bias=never_end)
    prompts = [PROMPTS[number % len(PROMPTS)] for number in range(size)]
    handles = [
        engine.submit(Request(prompt=prompt, sampling=greedy, controller=call))
        for prompt, call in zip(prompts, calls, strict=True)
    ]
    # Guests start one after the other, so sequences end one after the other: the first sequence is ahead.
    for handle in handles:
        begin, begin_steps = _after_tokens(engine, handle, _EDGE)
    end, end_steps = _after_tokens(engine, handles[0], num_tokens - 2 * _EDGE)
    ends = [handle.wait() for handle in handles]
    for finish in ends:
        if finish.error is not None:
            raise finish.error
        if len(finish.tokens) != num_tokens:
            raise AiciError(f"a sequence ended after {len(finish.tokens)} of {num_tokens} tokens: {finish.reason}")
    steps = max(1, end_steps - begin_steps)
    cpu_us = {name: 1e6 * used_s / steps for name, used_s in end.since(begin).items()}
    return Decoded(ends, 1e3 * (end.at - begin.at) / steps, cpu_us)


def _after_tokens(engine: Engine, handle: RequestHandle, count: int) -> tuple[ProcessorTime, int]:
    """Return the clocks, and the number of steps, once the sequence has got `count` more tokens."""
    for event in handle.events():
        if isinstance(event, TokenEvent):
            count -= 1
        if count == 0:
            break
    return ProcessorTime.read(os.getpid()), engine.get_stats()["num_steps"]


def compare(engine: Engine, num_tokens: int, rounds: int, calls: Sequence[ControllerCall]) -> dict[str, Any]:
    """Compare the speeds. A ratio is constrained / plain; 1 means that the constraint costs nothing.

    `interval`: of the median of the ratios (`median_interval`); None for few rounds. `ratio_of_fastest`: of the fastest
    rounds, which other programs on the machine have disturbed least. `cpu_us`: medians of the processor time a step by
    process, plain and constrained. `same_tokens`: the constraint has not changed the tokens.
    """
    nobody = [None] * len(calls)
    plain, constrained = [], []
    for _ in range(rounds):
        plain.append(decode(engine, len(calls), num_tokens, nobody))
        constrained.append(decode(engine, len(calls), num_tokens, calls))
    plain_ms = [each.ms_per_step for each in plain]
    constrained_ms = [each.ms_per_step for each in constrained]
    ratios = [a / b for a, b in zip(plain_ms, constrained_ms, strict=True)]
    return {
        "plain_ms": statistics.median(plain_ms),
        "constrained_ms": statistics.median(constrained_ms),
        "ratio_of_fastest": min(plain_ms) / min(constrained_ms),
        "median_of_ratios": statistics.median(ratios),
        "interval": median_interval(ratios),
        "cpu_us": {"plain": _medians(plain), "constrained": _medians(constrained)},
        "same_tokens": all(a.tokens == b.tokens for a, b in zip(plain, constrained, strict=True)),
    }


def _medians(decoded: Sequence[Decoded]) -> dict[str, float]:
    by_name: defaultdict[str, list[float]] = defaultdict(list)
    for each in decoded:
        for name, cpu_us in each.cpu_us_per_step.items():
            by_name[name].append(cpu_us)
    return {name: statistics.median(values) for name, values in by_name.items()}
