"""Measure what a guest costs to start, to fork, to stop and to keep; and a ping, which reaches no guest."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from aici_controllers.mask_bench.measure import percentile
from aici_controllers.mask_bench.vocabulary import BenchVocabulary
from aici_controllers.process_memory import pss_bytes
from aici_controllers.rt_bench import guests
from aici_controllers.rt_bench.fleet import Program, V1Fleet, start
from aici_controllers.rt_bench.floor import Floor
from aici_controllers.rt_bench.measure import APART, POOLED, SYNCS, Budget, Variant, burst, open_runtime, sparse
from aici_runtime.channels.mailbox import Sync
from aici_runtime.client import Runtime

_LIMIT_MS = 50
_PER_ROUND = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class LifeRow:
    """In microseconds, or in the unit of `unit`."""

    what: str
    values: list[float] = field(repr=False)
    unit: str = "us"

    def document(self) -> dict[str, Any]:
        values = {f"p{percent}_{self.unit}": percentile(self.values, percent) for percent in (0, 50, 99)}
        return {"measure": self.what, "count": len(self.values), **values}


def measure_life(
    vocabulary: BenchVocabulary,
    floors: Mapping[Sync, Floor],
    budget: Budget,
    *,
    num_idle: int,
    say: Callable[[str], None],
) -> Iterator[LifeRow]:
    """Times in seconds, collected by name; every round runs in a new runtime."""
    seconds: dict[str, list[float]] = {}

    def add(what: str, value: float) -> None:
        seconds.setdefault(what, []).append(value)

    for number in range(budget.rounds):
        say(f"{vocabulary.name}: starts and ends, round {number + 1} of {budget.rounds}")
        for name, floor in floors.items():
            for value in burst(floor.round_trip_s, budget.burst_s / 4, 0):
                add(f"floor, {name}", value)
        for variant in APART[: len(SYNCS)]:
            with open_runtime(vocabulary, variant, "--templates=0", max_step_time_ms=_LIMIT_MS) as runtime:
                for value in burst(lambda: _timed(runtime.ping), budget.burst_s / 4, 0):
                    add(f"ping, {variant.sync}", value)
                if variant is APART[0]:
                    _starts_and_ends(runtime, vocabulary, add)
        with open_runtime(vocabulary, APART[0]) as runtime:
            program = sparse(runtime, vocabulary)
            others = [replace(program, arg=f"{program.arg}|{number}") for number in range(2 + _PER_ROUND)]
            for what, programs in (("from a template", [program] * len(others)), ("new argument", others)):
                _warm_starts(runtime, programs, partial(add, f"instantiate, {what}"))
        with open_runtime(vocabulary, POOLED[0]) as runtime:
            programs = [sparse(runtime, vocabulary)] * (2 + _PER_ROUND)
            _warm_starts(runtime, programs, partial(add, "instantiate, in a pool"))
    for what, values in seconds.items():
        yield LifeRow(what=what, values=[1e6 * value for value in values])
    for variant in (APART[0], POOLED[0]):
        values = [_memory(vocabulary, variant, num_idle) / num_idle]
        yield LifeRow(what=f"memory of each of {num_idle}, {variant.placement}", values=values, unit="bytes")


def _starts_and_ends(runtime: Runtime, vocabulary: BenchVocabulary, add: Callable[[str, float], None]) -> None:
    program = sparse(runtime, vocabulary)
    add("instantiate, cold", _instantiate(runtime, program))
    for _ in range(_PER_ROUND):
        add("instantiate, again", _instantiate(runtime, program))
    with V1Fleet(runtime, program, 1) as fleet:
        fleet.mid()
        for _ in range(_PER_ROUND):
            # Measure in turn: the difference is the cost of the fork in its step.
            without = fleet.mid()
            add("fork", fleet.fork() - without)
    for name, mid, limit_s in (("trap", guests.TRAP, 0.0), ("runaway, over its limit", guests.SPIN, _LIMIT_MS / 1000)):
        failing = Program(name, runtime.mk_module(guests.guest(mid)).module_id, "", program.tokens)
        for _ in range(_PER_ROUND if name == "trap" else 1):
            with V1Fleet(runtime, failing, 1) as fleet:
                add(name, fleet.failing_mid() - limit_s)


def _warm_starts(runtime: Runtime, programs: Sequence[Program], add: Callable[[float], None]) -> None:
    """Start the guests one after another. The first two make the pool, and the template or image of the others."""
    for number, program in enumerate(programs):
        took = _instantiate(runtime, program)
        if number >= 2:
            add(took)


def _instantiate(runtime: Runtime, program: Program) -> float:
    """Return the seconds until the guest waits for its first step."""
    seconds = _timed(lambda: start(runtime, program, "one").result())
    runtime.discard("one")
    return seconds


def _memory(vocabulary: BenchVocabulary, variant: Variant, num_idle: int) -> int:
    """Return by how many bytes idle sequences let the runtime grow; shared memory counts once (proportional set
    size)."""
    with open_runtime(vocabulary, variant) as runtime:
        program = sparse(runtime, vocabulary)
        with V1Fleet(runtime, program, 1):
            pass
        before = pss_bytes(runtime.pid)
        with V1Fleet(runtime, program, num_idle) as fleet:
            fleet.mid()
            return pss_bytes(runtime.pid) - before


def _timed(action: Callable[[], object]) -> float:
    started = time.perf_counter()
    action()
    return time.perf_counter() - started
