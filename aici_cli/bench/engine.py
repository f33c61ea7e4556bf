"""`aici bench engine`: how fast the model runs, in our engine and in others."""

import hashlib
import os
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from aici_cli.bench.plot import check_plot, plot_engine
from aici_cli.output import print_json, say
from aici_runtime.cache import default_cache_dir
from aici_runtime.errors import NotFoundError, UsageError

if TYPE_CHECKING:
    from aici_cli.bench.engines.race import Entry, Result

_FORMS = {
    "hf": ("float32", "bfloat16"),
    "llama.cpp": ("Q4_0", "Q4_1", "Q8_0"),
    "ctranslate2": ("int8",),
    "vllm": ("bfloat16",),
}


def engine(
    model: Annotated[str | None, typer.Option(help="A model's name, folder, .gguf file or hub repository.")] = None,
    random: Annotated[
        str | None, typer.Option(help="Instead: half a billion random weights (llama, mistral, qwen2, qwen3).")
    ] = None,
    dtype: Annotated[list[str] | None, typer.Option(help="Of ours; several times (default: all; none: none).")] = None,
    peer: Annotated[
        list[str] | None,
        typer.Option(
            help="Another engine, NAME[:FORM][=PYTHON], or none; several times. Default: all. PYTHON: of what it is"
            " installed in."
        ),
    ] = None,
    batch: Annotated[
        list[int] | None, typer.Option(min=1, help="Sequences at once; several times (default: 1, 4, 16, 64).")
    ] = None,
    threads: Annotated[int | None, typer.Option(min=1, help="Of each engine (default: as many as cores).")] = None,
    prompt_tokens: Annotated[int, typer.Option(min=4, help="Tokens of each prompt.")] = 64,
    num_tokens: Annotated[int, typer.Option(min=3, help="Tokens to decode after each.")] = 33,
    rounds: Annotated[int, typer.Option(min=1, help="How often each is measured.")] = 7,
    limit: Annotated[float, typer.Option(min=1, help="Seconds for one answer of an engine.")] = 600,
    quick: Annotated[bool, typer.Option("--quick", help="A minute's version, without peers unless named.")] = False,
    plot: Annotated[Path | None, typer.Option(help="Draw it into this .svg or .png file.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Prefill and decode in tokens a second, time to load and memory: ours in each dtype, and other engines.

    All are loaded, each in a process of its own, and asked in turn for the same work: greedy tokens after the same
    prompts. What is ours is measured from outside the engine: scheduling, sampling and text count. × is the median,
    over rounds, of the ratio to the best peer at that batch size; a peer that is not installed says so.
    """
    from aici_cli.bench.engines.bandwidth import read_bandwidth
    from aici_cli.bench.engines.formats import RANDOM_MODELS, random_model
    from aici_cli.bench.engines.race import Plan, race
    from aici_engine.store.resolve import resolve_model

    check_plot(plot)
    entries = _entries(dtype, ["none"] if quick and peer is None else peer)
    if random not in (None, *RANDOM_MODELS):
        raise NotFoundError(f"no random model is called {random!r}", hint=f"models: {', '.join(RANDOM_MODELS)}")
    folder = resolve_model(model, say=say)
    if random is not None:
        folder = random_model(random, like=folder, out=_work(folder).parent / f"random-{random}")
    plan = Plan(
        model=folder,
        work=_work(folder),
        threads=threads or len(os.sched_getaffinity(0)),
        batches=batch or ([1, 4] if quick else [1, 4, 16, 64]),
        num_prompt=prompt_tokens,
        num_new=num_tokens,
        rounds=min(rounds, 3) if quick else rounds,
        limit_s=limit,
    )
    bandwidth = read_bandwidth(plan.threads)
    results = race(entries, plan, say)
    rows = _rows(results, plan.threads) + _costs(results, plan.model, bandwidth)
    if plot is not None:
        plot_engine([row for row in rows if row["measure"] == "speed"], plot)
    if json:
        print_json(rows)
    else:
        _print_tables(rows, plan.threads, bandwidth)


def _entries(dtypes: Sequence[str] | None, peers: Sequence[str] | None) -> "list[Entry]":
    from aici_cli.bench.engines.race import OURS, Entry
    from aici_engine.config import DTYPES

    known = [dtype for dtype in DTYPES if dtype != "auto"]  # which is one of the others
    for dtype in dtypes or []:
        if dtype not in (*known, "none"):
            raise NotFoundError(f"no dtype is called {dtype!r}", hint=f"dtypes: {', '.join(known)}, none")
    ours = [] if dtypes == ["none"] else dtypes or known
    entries = [Entry(engine=OURS, form=dtype) for dtype in ours]
    for peer in [] if peers == ["none"] else peers or _FORMS:
        named, _, python = peer.partition("=")
        name, _, form = named.partition(":")
        if name not in _FORMS:
            raise NotFoundError(f"no engine is called {name!r}", hint=f"engines: {', '.join(_FORMS)}, none")
        given = {"python": python} if python else {}
        entries += [Entry(engine=name, form=one, **given) for one in ([form] if form else _FORMS[name])]
    if not entries:
        raise UsageError("nothing to measure", hint="name a --dtype of ours, or a --peer")
    return list(dict.fromkeys(entries))


def _work(model: Path) -> Path:
    """Where the forms that contestants make of a model are kept: of this model as it is now."""
    weights = max((file.stat().st_mtime_ns for file in model.glob("*.safetensors")), default=0)
    identity = hashlib.sha256(f"{model} {weights}".encode()).hexdigest()[:12]
    work = default_cache_dir() / "bench" / f"{model.name}-{identity}"
    work.mkdir(parents=True, exist_ok=True)
    return work


def _rows(results: "Sequence[Result]", threads: int) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for result in results:
        for batch, cell in result.cells.items():
            best = {phase: _best_peer(results, batch, phase) for phase in ("prefill", "decode")}
            row = _head(result, "speed") | {"threads": threads, "batch": batch}
            for phase, values in (("prefill", cell.prefill), ("decode", cell.decode)):
                row[f"{phase}_tokens_per_s"] = statistics.median(values)
                row[f"{phase}_rounds"] = values
                other = best[phase]
                row[f"{phase}_best_peer"] = other.entry.name if other else None
                row[f"{phase}_to_best_peer"] = _paired(values, getattr(other.cells[batch], phase)) if other else None
            first = next(one.cells[batch] for one in results if batch in one.cells).first_tokens
            row["same_first_tokens"] = statistics.fmean(a == b for a, b in zip(cell.first_tokens, first, strict=False))
            row["step_ms"] = 1000 * batch / row["decode_tokens_per_s"]
            rows.append(row)
    return rows


def _paired(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Rounds that one of them did not live to see count for neither."""
    return statistics.median(a / b for a, b in zip(ours, theirs, strict=False))


def _best_peer(results: "Sequence[Result]", batch: int, phase: str) -> "Result | None":
    from aici_cli.bench.engines.race import OURS

    peers = [result for result in results if result.entry.engine != OURS and batch in result.cells]
    return max(peers, key=lambda result: statistics.median(getattr(result.cells[batch], phase)), default=None)


def _costs(results: "Sequence[Result]", model: Path, bandwidth: float) -> list[dict[str, Any]]:
    """What each costs, once: time, memory, and what memory's bandwidth allows at batch 1."""
    from aici_cli.bench.engines.bandwidth import weight_bytes
    from aici_cli.bench.engines.race import OURS

    rows = []
    for result in results:
        row = _head(result, "costs") | {
            "version": result.version,
            "start_s": result.start_s,
            "load_s": result.load_s,
            "now_bytes": result.now_bytes,
            "peak_bytes": result.peak_bytes,
            "error": result.error,
        }
        if result.entry.engine == OURS:
            row["weight_bytes"] = weight_bytes(model, result.entry.form)
            row["limit_tokens_per_s"] = bandwidth / row["weight_bytes"]
        rows.append(row)
    return rows


def _head(result: "Result", measure: str) -> dict[str, Any]:
    return {"measure": measure, "engine": result.entry.engine, "form": result.entry.form}


def _print_tables(rows: Sequence[Mapping[str, Any]], threads: int, bandwidth: float) -> None:
    print(f"{threads} threads; tokens a second, medians; × = median of paired ratios to the best peer of its column;")
    print("same = first tokens after the prompts that are the first engine's")
    print(
        f"{'engine':<12} {'weights':<9} {'batch':>5} {'prefill':>9} {'×':>6} {'decode':>9} {'×':>6} {'step ms':>8}"
        f" {'same':>5} {'× limit':>8}"
    )
    costs = {(row["engine"], row["form"]): row for row in rows if row["measure"] == "costs"}
    speeds = [row for row in rows if row["measure"] == "speed"]
    for row in sorted(speeds, key=lambda row: row["batch"]):
        limit = costs[row["engine"], row["form"]].get("limit_tokens_per_s")
        to_limit = f"{limit / row['decode_tokens_per_s']:.2f}" if limit and row["batch"] == 1 else ""
        print(
            f"{row['engine']:<12} {row['form']:<9} {row['batch']:>5} {row['prefill_tokens_per_s']:>9.0f}"
            f" {_times(row['prefill_to_best_peer']):>6} {row['decode_tokens_per_s']:>9.1f}"
            f" {_times(row['decode_to_best_peer']):>6} {row['step_ms']:>8.2f}"
            f" {row['same_first_tokens']:>5.0%} {to_limit:>8}"
        )
    print(f"\nmemory is read at {bandwidth / 1e9:.1f} GB/s; × limit: the time of a step to that of reading its weights")
    print(f"{'engine':<12} {'weights':<9} {'version':<12} {'start s':>8} {'load s':>7} {'MB now':>7} {'MB peak':>8}")
    for row in costs.values():
        figures = f"{row['now_bytes'] / 1e6:>7.0f} {row['peak_bytes'] / 1e6:>8.0f}  {row['error']}"
        times = f"{row['start_s']:>8.1f} {row['load_s']:>7.1f}"
        print(f"{row['engine']:<12} {row['form']:<9} {row['version']:<12} {times} {figures}".rstrip())


def _times(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:.2f}"
