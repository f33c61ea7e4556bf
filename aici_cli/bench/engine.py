"""`aici bench engine`: the speed of a model in our engine and in other engines."""

import hashlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

import typer

from aici_base.cache_files import default_cache_dir
from aici_base.errors import AiciError, NotFoundError, UsageError
from aici_cli.bench.plot import check_plot, plot_engine
from aici_cli.output import print_json, say

if TYPE_CHECKING:
    from aici_cli.bench.engines.compare import Entry
    from aici_engine.config import Dtype


def engine(
    model: Annotated[str | None, typer.Option(help="A model's name, folder, .gguf file or hub repository.")] = None,
    random: Annotated[
        str | None,
        typer.Option(help="Half a billion random weights instead of a model: llama, mistral, qwen2 or qwen3."),
    ] = None,
    dtype: Annotated[
        list[str] | None, typer.Option(help="Weight format of our engine, or none; may be repeated (default: all).")
    ] = None,
    kernels: Annotated[
        list[str] | None,
        typer.Option(help="Kernels of our engine: off or a CPU level, as in AICI_NATIVE; may be repeated."),
    ] = None,
    peer: Annotated[
        list[str] | None,
        typer.Option(
            help="Another engine, NAME[:FORM][=PYTHON], FILE.py[...] or none; may be repeated. Default: all of the"
            " checkout. PYTHON: the interpreter that the engine is installed in."
        ),
    ] = None,
    batch: Annotated[
        list[int] | None, typer.Option(min=1, help="Sequences in a batch; may be repeated (default: 1, 4, 16, 64).")
    ] = None,
    device: Annotated[Literal["cpu", "cuda"], typer.Option(help="Device of all engines.")] = "cpu",
    threads: Annotated[
        int | None, typer.Option(min=1, help="Threads of every engine (default: the number of cores).")
    ] = None,
    prompt_tokens: Annotated[int, typer.Option(min=4, help="Tokens per prompt.")] = 64,
    num_tokens: Annotated[int, typer.Option(min=3, help="Tokens to decode after a prompt.")] = 33,
    rounds: Annotated[int, typer.Option(min=1, help="Measurements per engine and batch size.")] = 5,
    limit: Annotated[float, typer.Option(min=1, help="Seconds that an engine may take for one reply.")] = 600,
    quick: Annotated[bool, typer.Option("--quick", help="A short version: a minute, and only named peers.")] = False,
    profile: Annotated[
        bool,
        typer.Option(
            "--profile", help="Only our engine: the time of every phase of a step, and the roofline of the kernels."
        ),
    ] = False,
    prefix: Annotated[bool, typer.Option("--prefix", help="Only our engine: prefixes that requests share.")] = False,
    plot: Annotated[Path | None, typer.Option(help="Draw the results to this .svg or .png file.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Measure prefill and decoding (tokens per second), load time and memory of our engine and of other engines.

    Every engine runs in its own process and gets the same work in turn: greedy tokens after the same prompts. Our
    engine is measured with scheduling, sampling and text. × is the median, over rounds, of the ratio to the best peer
    at the same batch size. A peer that is not installed is reported and left out.
    """
    from aici_cli.bench.engines.bandwidth import read_bandwidth
    from aici_cli.bench.engines.compare import Plan, compare
    from aici_cli.bench.engines.random_model import RANDOM_MODELS, random_model
    from aici_cli.bench.engines.report import costs, print_tables, speeds
    from aici_engine.config import DEFAULT_DTYPE
    from aici_engine.store.resolve import resolve_model

    check_plot(plot)
    if (profile or prefix) and (peer or kernels or plot):
        raise UsageError("--profile and --prefix measure only our engine", hint="omit --peer, --kernels and --plot")
    entries = _entries(dtype, kernels or [""], ["none"] if quick and peer is None else peer)
    if random not in (None, *RANDOM_MODELS):
        raise NotFoundError(f"no random model is called {random!r}", hint=f"models: {', '.join(RANDOM_MODELS)}")
    folder = resolve_model(model, say=say)
    if random is not None:
        folder = random_model(random, like=folder, out=_work(folder).parent / f"random-{random}")
    plan = Plan(
        model=folder,
        work=_work(folder),
        device=device,
        threads=threads or len(os.sched_getaffinity(0)),
        batches=batch or ([1, 4] if quick else [1, 4, 16, 64]),
        num_prompt=prompt_tokens,
        num_new=num_tokens,
        rounds=min(rounds, 3) if quick else rounds,
        limit_s=limit,
    )
    if profile or prefix:
        from aici_cli.bench.engines.own_profile import print_profile, profile_engine

        seen = profile_engine(
            plan, cast("Sequence[Dtype]", dtype or [DEFAULT_DTYPE]), profile=profile, prefix=prefix, say=say
        )
        if json:
            print_json(seen)
        else:
            print_profile(seen)
        return
    bandwidth = read_bandwidth(plan.threads)
    results = compare(entries, plan, say)
    if not any(result.cells for result in results):
        raise AiciError(f"no engine was measured; {results[0].entry.name}: {results[0].error}")
    bandwidth = max(
        bandwidth, read_bandwidth(plan.threads)
    )  # the larger value: other processes may have used bandwidth
    rows = speeds(results, plan) + costs(results, plan, bandwidth)
    if plot is not None:
        plot_engine([row for row in rows if row["measure"] == "speed"], plot)
    if json:
        print_json(rows)
    else:
        print_tables(rows, plan, bandwidth)


def _entries(dtypes: Sequence[str] | None, kernels: Sequence[str], peers: Sequence[str] | None) -> "list[Entry]":
    from aici_cli.bench.engines.compare import OURS, Entry
    from aici_cli.bench.peers import default_peers, find_peer
    from aici_engine.cluster.headers import WEIGHT_BYTES
    from aici_engine.native.cpu_levels import levels

    for dtype in dtypes or []:
        if dtype not in (*WEIGHT_BYTES, "none"):
            raise NotFoundError(f"no dtype is called {dtype!r}", hint=f"dtypes: {', '.join(WEIGHT_BYTES)}, none")
    names = ["off", *(level.name for level in levels())]
    for level in kernels:
        if level not in ("", *names):
            raise NotFoundError(f"no kernels are called {level!r}", hint=f"kernels: {', '.join(names)}")
    ours = [] if dtypes == ["none"] else dtypes or WEIGHT_BYTES
    entries = [Entry(engine=OURS, form=dtype, kernels=level) for level in kernels for dtype in ours]
    for wanted in [] if peers == ["none"] else peers or default_peers("engines"):
        named, _, python = wanted.partition("=")
        name, _, form = named.partition(":")
        peer: Any = find_peer("engines", name)
        forms = [form] if form else peer.FORMS
        entries += [Entry(engine=peer.NAME, form=one, python=python or sys.executable, peer=peer) for one in forms]
    if not entries:
        raise UsageError("nothing to measure", hint="give a --dtype or a --peer")
    return list(dict.fromkeys(entries))


def _work(model: Path) -> Path:
    """Return the folder for models that engines convert. A change of the weights gives another folder."""
    weights = max((file.stat().st_mtime_ns for file in model.glob("*.safetensors")), default=0)
    identity = hashlib.sha256(f"{model} {weights}".encode()).hexdigest()[:12]
    return default_cache_dir() / "bench" / f"{model.name}-{identity}"
