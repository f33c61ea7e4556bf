"""`aici bench constraint`: the cost of a constraint during decoding."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from aici_base.errors import AiciError, UsageError
from aici_cli.bench.plot import check_plot, plot_constraint
from aici_cli.output import print_json, say
from aici_cli.tables import print_table
from aici_engine.config import DEFAULT_DTYPE, DTYPE_HELP, Dtype

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from aici_engine.engine import Engine


def constraint(
    batch: Annotated[list[int], typer.Option(help="Sequences in a batch; may be repeated.")] = [1, 8],  # noqa: B006
    kind: Annotated[
        list[str],
        typer.Option(help="A kind of constraint: dense, sparse, schema, grammar or script; may be repeated."),
    ] = ["dense", "sparse"],  # noqa: B006
    threads: Annotated[list[int], typer.Option(help="Threads of the model; 0: all cores.")] = [0],  # noqa: B006
    num_tokens: Annotated[int, typer.Option(min=16, help="Tokens to decode.")] = 48,
    rounds: Annotated[int, typer.Option(min=1, help="Measurements per kind and batch size.")] = 9,
    quick: Annotated[bool, typer.Option("--quick", help="A short version: a minute.")] = False,
    device: Annotated[Literal["cpu", "cuda"], typer.Option(help="Device of the model.")] = "cpu",
    dtype: Annotated[Dtype, typer.Option(help=DTYPE_HELP)] = DEFAULT_DTYPE,
    model: Annotated[str | None, typer.Option(help="A model's name, folder, .gguf file or hub repository.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw the results to this .svg or .png file.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Compare decoding with and without a constraint: the same number of greedy tokens and batch size, in turn.

    `dense` allows nearly all tokens in every step, `sparse` only tokens that spell the text in either case; `schema`
    allows JSON strings, `grammar` sentences, and `script` is a program in JavaScript that allows what `dense` allows.
    A second table has the processor time of every process a step. Exits with 1 if `dense`, `sparse` or `script`
    changes the tokens; on a GPU, where a batch changes the last bits of logits, the table alone says so.
    """
    from aici_cli.bench.constraint_cost.kinds import KINDS, guests
    from aici_controllers.catalog import pooled_module_ids
    from aici_engine.config import EngineConfig
    from aici_engine.engine import Engine
    from aici_engine.store.resolve import resolve_model
    from aici_runtime.client import Runtime, RuntimeConfig

    if unknown := set(kind) - KINDS.keys():
        raise UsageError(f"unknown kind: {', '.join(sorted(unknown))}", hint=f"the kinds are {', '.join(KINDS)}")
    check_plot(plot)
    if quick:
        num_tokens, rounds = min(num_tokens, 24), min(rounds, 3)
    model_dir = resolve_model(model, say=say)
    rows: list[dict[str, Any]] = []
    with Runtime(RuntimeConfig(tokenizer=model_dir, pooled=pooled_module_ids())) as runtime:
        runtime.wait_ready()
        modules = {name: runtime.mk_module(wasm).module_id for name, wasm in guests(kind).items()}
        for count in threads:
            num_threads = count or len(os.sched_getaffinity(0))
            config = EngineConfig(
                model_dir=model_dir,
                device=device,
                dtype=dtype,
                max_num_seqs=max(batch),
                num_threads=num_threads,
                speculate="off",
            )
            with Engine(config, runtime=runtime) as engine:
                rows += _measure(engine, modules, batch, kind, num_tokens, rounds, num_threads)
    if plot is not None:
        plot_constraint(rows, plot)
    if json:
        print_json(rows)
    else:
        _print_times(rows)
        _print_processor_times(rows)
    if device == "cpu":
        check_tokens(rows)


def _measure(
    engine: "Engine",
    modules: "Mapping[str, str]",
    batch: "Sequence[int]",
    kinds: "Sequence[str]",
    num_tokens: int,
    rounds: int,
    num_threads: int,
) -> list[dict[str, Any]]:
    from aici_cli.bench.constraint_cost.kinds import KINDS
    from aici_cli.bench.constraint_cost.measure import compare, decode
    from aici_engine.request import ControllerCall

    rows = []
    for size in batch:
        texts = [end.text for end in decode(engine, size, num_tokens, [None] * size).ends]
        for kind in kinds:
            say(f"{num_threads} threads, batch {size}, {kind}: {rounds} rounds of {num_tokens} tokens")
            made = [KINDS[kind](text) for text in texts]
            calls: list[ControllerCall] = [ControllerCall(modules[each.guest], each.argument) for each in made]
            row = {"threads": num_threads, "batch": size, "kind": kind, **compare(engine, num_tokens, rounds, calls)}
            # For a run that is cut off:
            say(f"plain {row['plain_ms']:.3f} ms, ratio {row['median_of_ratios']:.3f} ({_interval(row)})")
            rows.append(row)
    return rows


def check_tokens(rows: "Sequence[Mapping[str, Any]]") -> None:
    """Raise AiciError if tokens differ: the two decodings are then different work, and the ratio says nothing."""
    from aici_cli.bench.constraint_cost.kinds import ALLOWS_THE_TEXT

    changed = [
        f"{row['kind']} at batch {row['batch']}"
        for row in rows
        if row["kind"] in ALLOWS_THE_TEXT and not row["same_tokens"]
    ]
    if changed:
        raise AiciError(f"a constraint that allows the text has changed the tokens: {', '.join(changed)}")


def _print_times(rows: "Sequence[Mapping[str, Any]]") -> None:
    names = ("plain_ms", "constrained_ms", "ratio_of_fastest", "median_of_ratios")
    titles = ("plain ms", "constrained ms", "ratio of fastest", "median of ratios", "95 % of it")
    print_table(
        ("threads", "batch", "kind", *titles, "same"),
        (
            [
                row["threads"],
                row["batch"],
                row["kind"],
                *(f"{row[name]:.3f}" for name in names),
                _interval(row),
                "yes" if row["same_tokens"] else "no",
            ]
            for row in rows
        ),
        num_left=3,
    )


def _interval(row: "Mapping[str, Any]") -> str:
    return "{:.3f} to {:.3f}".format(*row["interval"]) if row["interval"] else "too few rounds"


def _print_processor_times(rows: "Sequence[Mapping[str, Any]]") -> None:
    """Print the microseconds a step of each process under the constraint, and of the engine without it."""
    names = sorted({name for row in rows for used in row["cpu_us"].values() for name in used})
    print_table(
        ("threads", "batch", "kind", "engine, plain", *names),
        (
            [
                row["threads"],
                row["batch"],
                row["kind"],
                f"{row['cpu_us']['plain'].get('engine', 0.0):.0f} µs",
                *(f"{row['cpu_us']['constrained'].get(name, 0.0):.0f} µs" for name in names),
            ]
            for row in rows
        ),
        num_left=3,
    )
