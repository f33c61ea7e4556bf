"""`aici bench engine`: how fast the model runs, in our engine and in others."""

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
        str | None, typer.Option(help="Instead: half a billion random weights (llama, mistral, qwen2, qwen3).")
    ] = None,
    dtype: Annotated[list[str] | None, typer.Option(help="Of ours; several times (default: all; none: none).")] = None,
    kernels: Annotated[
        list[str] | None, typer.Option(help="Of ours, as AICI_NATIVE names them: off, or a level; several times.")
    ] = None,
    peer: Annotated[
        list[str] | None,
        typer.Option(
            help="Another engine, NAME[:FORM][=PYTHON], FILE.py[...] or none; may be repeated. Default: all of the"
            " checkout. PYTHON: the interpreter that the engine is installed in."
        ),
    ] = None,
    batch: Annotated[
        list[int] | None, typer.Option(min=1, help="Sequences at once; several times (default: 1, 4, 16, 64).")
    ] = None,
    device: Annotated[Literal["cpu", "cuda"], typer.Option(help="cpu or cuda, of each that has both.")] = "cpu",
    threads: Annotated[int | None, typer.Option(min=1, help="Of each engine (default: as many as cores).")] = None,
    prompt_tokens: Annotated[int, typer.Option(min=4, help="Tokens of each prompt.")] = 64,
    num_tokens: Annotated[int, typer.Option(min=3, help="Tokens to decode after each.")] = 33,
    rounds: Annotated[int, typer.Option(min=1, help="How often each is measured.")] = 5,
    limit: Annotated[float, typer.Option(min=1, help="Seconds for one answer of an engine.")] = 600,
    quick: Annotated[bool, typer.Option("--quick", help="A minute's version, without peers unless named.")] = False,
    profile: Annotated[bool, typer.Option("--profile", help="Of ours alone: where the time of a step goes.")] = False,
    prefix: Annotated[bool, typer.Option("--prefix", help="Of ours alone: what requests share.")] = False,
    plot: Annotated[Path | None, typer.Option(help="Draw it into this .svg or .png file.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Prefill and decode in tokens a second, time to load and memory: ours in each dtype, and other engines.

    All are loaded, each in a process of its own, and asked in turn for the same work: greedy tokens after the same
    prompts. What is ours is measured from outside the engine: scheduling, sampling and text count. × is the median,
    over rounds, of the ratio to the best peer at that batch size; a peer that is not installed says so.
    """
    from aici_cli.bench.engines.bandwidth import read_bandwidth
    from aici_cli.bench.engines.compare import Plan, compare
    from aici_cli.bench.engines.random_model import RANDOM_MODELS, random_model
    from aici_cli.bench.engines.report import costs, print_tables, speeds
    from aici_engine.config import DEFAULT_DTYPE
    from aici_engine.store.resolve import resolve_model

    check_plot(plot)
    if (profile or prefix) and (peer or kernels or plot):
        raise UsageError("--profile and --prefix are of ours alone", hint="leave out --peer, --kernels and --plot")
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
    bandwidth = max(bandwidth, read_bandwidth(plan.threads))  # a limit: neighbours may have had a part of it
    rows = speeds(results, plan) + costs(results, plan, bandwidth)
    if plot is not None:
        plot_engine([row for row in rows if row["measure"] == "speed"], plot)
    if json:
        print_json(rows)
    else:
        print_tables(rows, plan, bandwidth)


def _entries(dtypes: Sequence[str] | None, kernels: Sequence[str], peers: Sequence[str] | None) -> "list[Entry]":
    from aici_cli.bench.engines.bandwidth import WEIGHT_BITS
    from aici_cli.bench.engines.compare import OURS, Entry
    from aici_cli.bench.peers import default_peers, find_peer
    from aici_engine.native.cpu_levels import levels

    for dtype in dtypes or []:
        if dtype not in (*WEIGHT_BITS, "none"):
            raise NotFoundError(f"no dtype is called {dtype!r}", hint=f"dtypes: {', '.join(WEIGHT_BITS)}, none")
    names = ["off", *(level.name for level in levels())]
    for level in kernels:
        if level not in ("", *names):
            raise NotFoundError(f"no kernels are called {level!r}", hint=f"kernels: {', '.join(names)}")
    ours = [] if dtypes == ["none"] else dtypes or WEIGHT_BITS
    entries = [Entry(engine=OURS, form=dtype, kernels=level) for level in kernels for dtype in ours]
    for wanted in [] if peers == ["none"] else peers or default_peers("engines"):
        named, _, python = wanted.partition("=")
        name, _, form = named.partition(":")
        peer: Any = find_peer("engines", name)
        forms = [form] if form else peer.FORMS
        entries += [Entry(engine=peer.NAME, form=one, python=python or sys.executable, peer=peer) for one in forms]
    if not entries:
        raise UsageError("nothing to measure", hint="name a --dtype of ours, or a --peer")
    return list(dict.fromkeys(entries))


def _work(model: Path) -> Path:
    """Where the forms that contestants make of a model are kept: of this model as it is now."""
    weights = max((file.stat().st_mtime_ns for file in model.glob("*.safetensors")), default=0)
    identity = hashlib.sha256(f"{model} {weights}".encode()).hexdigest()[:12]
    return default_cache_dir() / "bench" / f"{model.name}-{identity}"
