"""Give all engines the same work in turn, round by round, and record the speeds."""

import random
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any

from aici_cli.bench.engines import protocol
from aici_cli.bench.engines.process import BenchEngineError, Process

PROSE = Path(__file__).parent / "prose.txt"
OURS = "aici"
Ids = list[list[int]]


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One engine with one weight format.

    `form`: the weight format, in the engine's own terms. `python`: the interpreter that the engine is installed in.
    `kernels`: AICI_NATIVE of our engine. `peer`: the module of another engine; None for our engine.
    """

    engine: str
    form: str
    python: str = sys.executable
    kernels: str = ""
    peer: ModuleType | None = None

    @property
    def title(self) -> str:
        return f"{self.engine}/{self.kernels}" if self.kernels else self.engine

    @property
    def name(self) -> str:
        return f"{self.title} {self.form}"

    @property
    def env(self) -> dict[str, str]:
        return {"AICI_NATIVE": self.kernels} if self.kernels else {}

    @property
    def command(self) -> list[str]:
        if self.peer is None:
            return [self.python, "-P", "-m", "aici_cli.bench.engines.ours"]
        return [self.python, protocol.__file__, str(self.peer.__file__)]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The work of all engines. `work`: folder for converted models, kept between runs."""

    model: Path
    work: Path
    device: str
    threads: int
    batches: Sequence[int]
    num_prompt: int
    num_new: int
    rounds: int
    limit_s: float

    def job(self, entry: Entry) -> dict[str, Any]:
        return {
            "model": str(self.model),
            "form": entry.form,
            "work": str(self.work),
            "made": str(self.work / f"{entry.engine}-{entry.form}"),
            "device": self.device,
            "threads": self.threads,
            "batch": max(self.batches),
            "length": self.num_prompt + self.num_new,
        }


@dataclass(kw_only=True)
class Cell:
    """Tokens per second of one engine at one batch size, one value per round; and the first new tokens."""

    prefill: list[float] = field(default_factory=list)
    decode: list[float] = field(default_factory=list)
    first_tokens: list[int] = field(default_factory=list)


@dataclass(kw_only=True)
class Result:
    """`start_s`: process start and loading; `load_s`: loading alone. `error`: why the engine was dropped."""

    entry: Entry
    version: str = ""
    start_s: float = 0.0
    load_s: float = 0.0
    now_bytes: int = 0
    peak_bytes: int = 0
    cells: dict[int, Cell] = field(default_factory=dict)
    error: str = ""


class Prompts:
    """Token ids from a text. Every prompt starts at a new random position, so that no prefix cache can help."""

    def __init__(self, model: Path) -> None:
        self._file = model / "tokenizer.json"
        self._rng = random.Random(7)

    @cached_property
    def _ids(self) -> list[int]:
        from tokenizers import Tokenizer

        ids: list[int] = Tokenizer.from_file(str(self._file)).encode(PROSE.read_text(), add_special_tokens=False).ids
        return ids

    def take(self, batch: int, length: int) -> Ids:
        return [self._one(length) for _ in range(batch)]

    def _one(self, length: int) -> list[int]:
        at = self._rng.randrange(len(self._ids))
        # Three random tokens first, since two prompts may start at the same position.
        any_ids = self._rng.choices(self._ids, k=3)
        return [*any_ids, *(self._ids[(at + k) % len(self._ids)] for k in range(length))][:length]


def compare(entries: Sequence[Entry], plan: Plan, say: Callable[[str], None]) -> list[Result]:
    """Load all engines, then run rounds. Idle engines stay loaded. An engine that fails is dropped with its error."""
    results = [Result(entry=entry) for entry in entries]
    prompts = Prompts(plan.model)
    with ExitStack() as stack:
        running: list[tuple[Result, Process]] = []
        for result in results:
            say(f"{result.entry.name}: loading")
            try:
                running.append((result, _loaded(result, plan, stack)))
            except BenchEngineError as error:
                _fail(result, error, say)
        for batch in plan.batches:
            say(f"batch {batch}: {plan.rounds} rounds of {len(running)} engines")
            # The first round is a warm-up: some engines compile on first use.
            for number in range(-1, plan.rounds):
                work = prompts.take(batch, plan.num_prompt)
                for one in list(running):
                    try:
                        _round(*one, work, plan.num_new, counts=number >= 0)
                    except BenchEngineError as error:
                        _fail(one[0], error, say)
                        running.remove(one)
        for result, process in running:
            result.now_bytes, result.peak_bytes = process.memory()
    return results


def _loaded(result: Result, plan: Plan, stack: ExitStack) -> Process:
    entry = result.entry
    job = plan.job(entry)
    # Conversion runs in other processes, so that its memory does not count.
    with Process(entry.command, env=entry.env, limit_s=plan.limit_s) as maker:
        result.version = maker.ask("version", job)["version"]
        if not Path(job["made"]).exists():
            plan.work.mkdir(parents=True, exist_ok=True)
            make_input = getattr(entry.peer, "make_input", None)
            if make_input is not None:
                make_input(job)
            maker.ask("prepare", job)
    began = time.perf_counter()
    process = stack.enter_context(Process(entry.command, env=entry.env, limit_s=plan.limit_s))
    result.load_s = process.ask("load", job)["load_s"]
    result.start_s = time.perf_counter() - began
    return process


def _round(result: Result, process: Process, work: Ids, num_new: int, *, counts: bool) -> None:
    """Run the prompts twice: for one token, to time prefill, and for `num_new` tokens, to time decoding.

    In the second run an engine may reuse the prompts' cache, because only decoding counts.
    """
    prefilled = process.ask("run", {"prompts": work, "num_new": 1})
    decoded = process.ask("run", {"prompts": work, "num_new": num_new})
    rate = decode_rate(decoded["times"])
    if not rate:
        raise BenchEngineError(f"{len(work)} sequences never decode together: give more --num-tokens")
    if counts:
        cell = result.cells.setdefault(len(work), Cell())
        cell.prefill.append(len(work) * len(work[0]) / max(times[-1] for times in prefilled["times"]))
        cell.decode.append(rate)
        cell.first_tokens += [tokens[0] for tokens in prefilled["tokens"]]


def decode_rate(times: Sequence[Sequence[float]]) -> float:
    """Return tokens per second in the time when all sequences decode; 0 without such a time.

    The time begins with the first token of the last sequence and ends when the first sequence ends. The rate of a
    sequence comes from the intervals between its own tokens, since the tokens of one step arrive at different moments.
    """
    start, end = max(one[0] for one in times), min(one[-1] for one in times)
    inside = [[at for at in one if start <= at <= end] for one in times]
    return sum((len(one) - 1) / (one[-1] - one[0]) for one in inside if len(one) > 1)


def _fail(result: Result, error: BenchEngineError, say: Callable[[str], None]) -> None:
    result.error = error.message
    say(f"{result.entry.name}: {error.message}")
