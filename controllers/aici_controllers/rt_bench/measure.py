"""The measurements and their order. Variants to compare are measured in turn, A B A B, in one run."""

import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Literal, TypeVar

from aici_base.ids import TokenId
from aici_controllers.catalog import guest_path
from aici_controllers.mask_bench.measure import percentile
from aici_controllers.mask_bench.vocabulary import BenchVocabulary
from aici_controllers.rt_bench import guests
from aici_controllers.rt_bench.fleet import Fleet, Program, StepTimes, TurnFleet, V1Fleet, V2Fleet
from aici_controllers.rt_bench.floor import Floor
from aici_runtime.channels.mailbox import Sync
from aici_runtime.client import Runtime, RuntimeConfig
from aici_runtime.flags import Placement
from aici_runtime.wire import Proto

T = TypeVar("T")

GAPS_MS: Final = (0, 3)
"""The pause between two steps: none, or as long as a device computes."""

_MIN_STEPS = 3
_DIGITS = "0123456789"


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """`burst_s`: how long one variant runs before the next variant's turn; `rounds`: the number of turns."""

    rounds: int
    burst_s: float


Commands = Literal["v1", "v2", "turn"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """How an engine talks to the runtime. `turn`: v1 with one binary message a step, as aici's own engine does."""

    commands: Commands
    sync: Sync
    placement: Placement = "process"

    @property
    def proto(self) -> Proto:
        return "v2" if self.commands == "v2" else "v1"


SYNCS: Final[tuple[Sync, ...]] = ("semaphore", "futex")
APART: Final = (
    *(Variant(commands=commands, sync=sync) for commands in ("v1", "v2") for sync in SYNCS),
    Variant(commands="turn", sync="semaphore"),
)
POOLED: Final = tuple(
    Variant(commands=commands, sync="semaphore", placement="pool") for commands in ("v1", "v2", "turn")
)
VARIANTS: Final = (*APART, *POOLED)
FLEETS: Final[Mapping[Commands, type[Fleet]]] = {"v1": V1Fleet, "v2": V2Fleet, "turn": TurnFleet}


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRow:
    """In microseconds. `floor_us`: a bare round trip over the same primitive, measured in the same rounds."""

    tokenizer: str
    mask: str
    sequences: int
    gap_ms: int
    variant: Variant
    times: list[StepTimes] = field(repr=False)
    floor_us: float

    def mid_us(self, percent: float = 50) -> float:
        return 1e6 * percentile([times.mid_s for times in self.times], percent)

    def step_us(self, percent: float = 50) -> float:
        return 1e6 * percentile([times.step_s for times in self.times], percent)

    def document(self) -> dict[str, Any]:
        return {
            "measure": "step",
            "tokenizer": self.tokenizer,
            "mask": self.mask,
            "sequences": self.sequences,
            "gap_ms": self.gap_ms,
            **asdict(self.variant),
            "steps": len(self.times),
            "mid_min_us": self.mid_us(0),
            "mid_p50_us": self.mid_us(),
            "mid_p99_us": self.mid_us(99),
            "step_p50_us": self.step_us(),
            "step_p99_us": self.step_us(99),
            "floor_p50_us": self.floor_us,
            "mid_to_floor": self.mid_us() / self.floor_us,
        }


def open_runtime(vocabulary: BenchVocabulary, variant: Variant, *more: str, **changes: Any) -> Runtime:
    """Start a runtime. `more`: additional flags; `changes`: changes of the configuration."""
    flags = (f"--proto={variant.proto}", f"--placement={variant.placement}", "--wasm-max-timeout-steps=0", *more)
    runtime = Runtime(
        RuntimeConfig(
            tokenizer=vocabulary.loaded.tokenizer_json, sync=variant.sync, bin_size_mib=64, extra_args=flags, **changes
        )
    )
    try:
        runtime.wait_ready()
    except BaseException:
        runtime.close()
        raise
    return runtime


def sparse(runtime: Runtime, vocabulary: BenchVocabulary) -> Program:
    """The regex guest. The pattern allows the next digits and an underscore, because a single possibility would be
    forced. The masks of the ten states are computed once, as in any regex with a repetition; then a step costs the
    path through runtime, guest and wire."""
    module_id = runtime.mk_module(guest_path("regex").read_bytes()).module_id
    tokens = [_token(vocabulary, digit) for digit in _DIGITS]
    return Program("sparse", module_id, f"({''.join(f'[{digit}_]' for digit in _DIGITS)})*", tokens)


def full(runtime: Runtime, vocabulary: BenchVocabulary) -> Program:
    """A guest that walks nearly the whole trie in every step for a mask that allows nearly all tokens, and caches
    nothing."""
    module_id = runtime.mk_module(guests.guest(guests.WALK)).module_id
    return Program("full", module_id, "", [_token(vocabulary, "a")])


def _token(vocabulary: BenchVocabulary, text: str) -> TokenId:
    return TokenId(vocabulary.token_bytes.index(text.encode()))


def measure_steps(
    vocabulary: BenchVocabulary,
    floors: Mapping[Sync, Floor],
    budget: Budget,
    *,
    sizes: Sequence[int],
    say: Callable[[str], None],
) -> Iterator[StepRow]:
    with ExitStack() as stack:
        runtimes = {variant: stack.enter_context(open_runtime(vocabulary, variant)) for variant in VARIANTS}
        for make in (sparse, full):
            programs = {variant: make(runtime, vocabulary) for variant, runtime in runtimes.items()}
            for size in sizes:
                say(f"{vocabulary.name}: {make.__name__} masks, {size} sequences")
                with ExitStack() as fleets_stack:
                    fleets = {
                        variant: fleets_stack.enter_context(FLEETS[variant.commands](runtime, programs[variant], size))
                        for variant, runtime in runtimes.items()
                    }
                    yield from _rounds(vocabulary.name, make.__name__, size, fleets, floors, budget)


def _rounds(
    tokenizer: str,
    mask: str,
    size: int,
    fleets: Mapping[Variant, Fleet],
    floors: Mapping[Sync, Floor],
    budget: Budget,
) -> Iterator[StepRow]:
    times: dict[tuple[Variant, int], list[StepTimes]] = {(v, gap): [] for v in fleets for gap in GAPS_MS}
    floor_s: dict[tuple[Sync, int], list[float]] = {(name, gap): [] for name in floors for gap in GAPS_MS}
    for fleet in fleets.values():
        for _ in range(2 * len(_DIGITS) if mask == "sparse" else 1):
            fleet.step()
    for _ in range(budget.rounds):
        for gap in GAPS_MS:
            for name, floor in floors.items():
                floor_s[name, gap] += burst(floor.round_trip_s, budget.burst_s / 4, gap)
            for variant, fleet in fleets.items():
                times[variant, gap] += burst(fleet.step, budget.burst_s, gap)
    for (variant, gap), every in times.items():
        yield StepRow(
            tokenizer=tokenizer,
            mask=mask,
            sequences=size,
            gap_ms=gap,
            variant=variant,
            times=every,
            floor_us=1e6 * statistics.median(floor_s[variant.sync, gap]),
        )


def burst(once: Callable[[], T], seconds: float, gap_ms: int) -> list[T]:
    results: list[T] = []
    deadline = time.perf_counter() + seconds
    while len(results) < _MIN_STEPS or time.perf_counter() < deadline:
        if gap_ms:
            time.sleep(gap_ms / 1000)
        results.append(once())
    return results
