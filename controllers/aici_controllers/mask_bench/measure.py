"""The clock. Every round walks the text once with every engine in turn, started afresh so that lazy caches are empty.

Times are CPU time of the calling thread (for the start: of the process), because other work shares the cores. The time
of a position is the minimum over the rounds; percentiles are over positions; times of the start and of the first mask
are medians over the rounds.
"""

import gc
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

from aici_controllers.mask_bench.cases import MaskCase
from aici_controllers.mask_bench.engine import KeepsBetweenRequests, MaskEngine
from aici_controllers.mask_bench.probe import Findings, can_start, probe
from aici_controllers.mask_bench.vocabulary import BenchVocabulary


@dataclass(frozen=True, slots=True, kw_only=True)
class MaskBudget:
    rounds: int
    limit_s: float
    """An engine with a slower walk is not measured on the case."""
    cell_s: float
    """An engine whose rounds together take longer gets fewer rounds, but at least one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One engine on one case. If `findings.problem` says why nothing was measured, all times are 0."""

    tokenizer: str
    case: str
    engine: str
    findings: Findings
    text_tokens: int
    rounds: int = 0
    first_us: float = 0.0
    """`ready_us` of the first request. Equal to `ready_us` unless the engine keeps something between requests."""
    ready_us: float = 0.0
    """From the request until the engine can be asked for a mask, for the second and later requests."""
    first_mask_us: float = 0.0
    masks_us: Sequence[float] = ()
    consume_us: float = 0.0

    @property
    def refuses(self) -> bool:
        """Whether the engine refuses the conforming text."""
        return not self.findings.problem and not self.findings.may_end

    @property
    def mask_p50_us(self) -> float:
        return percentile(self.masks_us, 50)

    @property
    def mask_p99_us(self) -> float:
        return percentile(self.masks_us, 99)

    @property
    def mask_max_us(self) -> float:
        return max(self.masks_us, default=0.0)

    def document(self) -> dict[str, object]:
        document = asdict(self)
        document |= {"mask_p50_us": self.mask_p50_us, "mask_p99_us": self.mask_p99_us, "mask_max_us": self.mask_max_us}
        return document | {"refuses_text": self.refuses}


def percentile(values: Sequence[float], percent: float) -> float:
    """Return the smallest value not below `percent` of all values; 0 without values."""
    ordered = sorted(values)
    return ordered[max(0, -(-len(ordered) * percent // 100).__int__() - 1)] if ordered else 0.0


@dataclass(slots=True)
class _Walk:
    first_ns: int
    ready_ns: int
    masks_ns: list[int]
    consumes_ns: list[int]


def measure(
    engines: Sequence[MaskEngine],
    case: MaskCase,
    vocabulary: BenchVocabulary,
    budget: MaskBudget,
    say: Callable[[str], None] = lambda _: None,
) -> list[Row]:
    """Yield a row for every engine, in the given order."""
    tokens = vocabulary.encode(case.text)
    findings = {engine.name: _find(engine, case, vocabulary, budget) for engine in engines}
    walks: dict[str, list[_Walk]] = {engine.name: [] for engine in engines}
    rounds = {name: _rounds(found, budget) for name, found in findings.items()}
    for number in range(budget.rounds):
        for engine in engines:
            if number < rounds[engine.name]:
                walks[engine.name].append(_walk(engine, case, tokens[: findings[engine.name].num_tokens]))
    say(f"{vocabulary.name} {case.name}: {', '.join(f'{name} x{count}' for name, count in rounds.items())}")
    return [
        _row(engine.name, case, vocabulary, findings[engine.name], walks[engine.name], tokens) for engine in engines
    ]


def _find(engine: MaskEngine, case: MaskCase, vocabulary: BenchVocabulary, budget: MaskBudget) -> Findings:
    if problem := can_start(engine, case):
        return Findings(problem=problem)
    return probe(engine, case, vocabulary, limit_s=budget.limit_s)


def _rounds(findings: Findings, budget: MaskBudget) -> int:
    if findings.problem:
        return 0
    return max(1, min(budget.rounds, int(budget.cell_s / max(findings.seconds, 1e-6))))


def _walk(engine: MaskEngine, case: MaskCase, tokens: Sequence[int]) -> _Walk:
    cpu, thread = time.process_time_ns, time.thread_time_ns
    gc.collect()
    gc.disable()
    try:
        first_ns = 0
        if isinstance(engine, KeepsBetweenRequests):
            started = cpu()
            engine.start_first(case)
            first_ns = cpu() - started
        started = cpu()
        session = engine.start(case)
        ready_ns = cpu() - started
        walk = _Walk(first_ns or ready_ns, ready_ns, [], [])
        for token in tokens:
            before = thread()
            session.mask()
            between = thread()
            session.consume(token)
            walk.masks_ns.append(between - before)
            walk.consumes_ns.append(thread() - between)
        before = thread()
        session.mask()
        walk.masks_ns.append(thread() - before)
        return walk
    finally:
        gc.enable()


def _row(
    engine: str,
    case: MaskCase,
    vocabulary: BenchVocabulary,
    findings: Findings,
    walks: list[_Walk],
    tokens: Sequence[int],
) -> Row:
    row = Row(tokenizer=vocabulary.name, case=case.name, engine=engine, findings=findings, text_tokens=len(tokens))
    if not walks:
        return row
    consumes = [min(column) for column in zip(*(walk.consumes_ns for walk in walks), strict=True)]
    return Row(
        tokenizer=row.tokenizer,
        case=row.case,
        engine=engine,
        findings=findings,
        text_tokens=len(tokens),
        rounds=len(walks),
        first_us=statistics.median(walk.first_ns for walk in walks) / 1000,
        ready_us=statistics.median(walk.ready_ns for walk in walks) / 1000,
        first_mask_us=statistics.median(walk.masks_ns[0] for walk in walks) / 1000,
        masks_us=[min(column) / 1000 for column in zip(*(walk.masks_ns for walk in walks), strict=True)],
        consume_us=percentile(consumes, 50) / 1000,
    )
