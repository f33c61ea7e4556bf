"""The plots of `aici bench`: .svg or .png files, drawn by matplotlib."""

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aici_base.errors import UnavailableError, UsageError

if TYPE_CHECKING:
    from aici_controllers.mask_bench.measure import Row
    from aici_controllers.rt_bench.measure import StepRow


def check_plot(path: Path | None) -> None:
    """Check before a measurement that a plot can be written to `path`. Raises UsageError or UnavailableError."""
    if path is None:
        return
    if path.suffix not in (".svg", ".png"):
        raise UsageError(f"cannot draw {path}", hint="use a file name with .svg or .png")
    if not path.absolute().parent.is_dir():
        raise UsageError(f"cannot draw {path}: the folder does not exist")
    if importlib.util.find_spec("matplotlib") is None:
        raise UnavailableError("matplotlib is not installed", hint="pip install 'aici[bench]'")


def plot_constraint(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """Draw bars: milliseconds per token, without and with the constraint."""
    figure, axes = _figure(1, width=2 + 1.4 * len(rows), height=4)
    for offset, key, label in ((-0.2, "plain_ms", "plain"), (0.2, "constrained_ms", "constrained")):
        axes[0].bar([n + offset for n in range(len(rows))], [row[key] for row in rows], width=0.4, label=label)
    axes[0].set_xticks(range(len(rows)), [f"{row['kind']}\nbatch {row['batch']}" for row in rows])
    axes[0].set_ylabel("ms per token")
    axes[0].legend()
    _save(figure, path)


def plot_masks(rows: Sequence["Row"], path: Path) -> None:
    """Draw per tokenizer, case and engine: a dot at the median, a bar to the 99th percentile, a tick at the maximum."""
    tokenizers = list(dict.fromkeys(row.tokenizer for row in rows))
    cases = list(dict.fromkeys(row.case for row in rows))
    engines = list(dict.fromkeys(row.engine for row in rows))
    figure, axes = _figure(len(tokenizers), width=2 + 0.8 * len(cases), height=4)
    for axis, tokenizer in zip(axes, tokenizers, strict=True):
        for number, engine in enumerate(engines):
            own = [row for row in rows if (row.tokenizer, row.engine) == (tokenizer, engine) and row.masks_us]
            at = [cases.index(row.case) + 0.6 * (number + 0.5) / len(engines) - 0.3 for row in own]
            color = f"C{number}"
            axis.vlines(at, [row.mask_p50_us for row in own], [row.mask_p99_us for row in own], color=color)
            axis.plot(at, [row.mask_p50_us for row in own], "o", color=color, label=engine, markersize=4)
            axis.plot(at, [row.mask_max_us for row in own], "_", color=color)
        axis.set_yscale("log")
        axis.set_ylabel("µs a mask")
        axis.set_title(f"{tokenizer}: mask p50 (dot), p99 (bar), max (tick)")
        axis.set_xticks(range(len(cases)), cases, rotation=30, ha="right")
        axis.grid(axis="y", alpha=0.3)
    axes[0].legend()
    _save(figure, path)


def plot_serve(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """Draw over the number of clients: tokens per second, time to the first token, time between tokens (p50, p99)."""
    closed = [row for row in rows if "concurrency" in row]
    figure, axes = _figure(3, width=7, height=3.2)
    for number, kind in enumerate(dict.fromkeys(row["kind"] for row in closed)):
        own = [row for row in closed if row["kind"] == kind]
        clients = [row["concurrency"] for row in own]
        axes[0].plot(clients, [row["tokens_per_s"] for row in own], "o-", color=f"C{number}", label=kind)
        for axis, name in ((axes[1], "first_token"), (axes[2], "inter_token")):
            for percent, style in ((50, "o-"), (99, "o:")):
                values = [row[f"{name}_p{percent}_ms"] for row in own]
                axis.plot(clients, values, style, color=f"C{number}", label=f"{kind} p{percent}", markersize=4)
    for axis, name in zip(axes, ("tokens a second", "ms to the first token", "ms between tokens"), strict=True):
        axis.set_xscale("log", base=2)
        axis.set_ylabel(name)
        axis.set_xlabel("clients")
        axis.grid(alpha=0.3)
        axis.legend()
    _save(figure, path)


def plot_cluster(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """Draw over the number of requests, per number of machines: tokens per second, first token, between tokens."""
    figure, axes = _figure(3, width=7, height=3.2)
    for number, machines in enumerate(dict.fromkeys(row["machines"] for row in rows)):
        for kind, style in (("plain", "o-"), ("regex", "o:")):
            own = [row for row in rows if (row["machines"], row["kind"]) == (machines, kind)]
            names = ("tokens_per_s", "first_token_p50_ms", "inter_token_p50_ms")
            for axis, name in zip(axes, names, strict=True):
                values = [row[name] for row in own]
                label = f"{machines} machines, {kind}"
                axis.plot([row["batch"] for row in own], values, style, color=f"C{number}", label=label, markersize=4)
    titles = ("tokens a second", "ms to the first token, p50", "ms between tokens, p50")
    for axis, title in zip(axes, titles, strict=True):
        axis.set_xscale("log", base=2)
        axis.set_ylabel(title)
        axis.set_xlabel("requests at a time")
        axis.grid(alpha=0.3)
        axis.legend()
    _save(figure, path)


def plot_engine(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """Draw over the batch size: tokens per second of prefill and of decoding. Our engine is solid, peers are dashed."""
    figure, axes = _figure(2, width=8, height=4.5)
    for number, name in enumerate(dict.fromkeys((row["engine"], row["form"]) for row in rows)):
        own = [row for row in rows if (row["engine"], row["form"]) == name]
        batches = [row["batch"] for row in own]
        style = "o-" if name[0].startswith("aici") else "o--"
        for axis, phase in zip(axes, ("prefill", "decode"), strict=True):
            values = [row[f"{phase}_tokens_per_s"] for row in own]
            axis.plot(batches, values, style, color=f"C{number}", label=" ".join(name), markersize=4)
    for axis, phase in zip(axes, ("prefill", "decode"), strict=True):
        axis.set_xscale("log", base=2)
        axis.set_yscale("log")
        axis.set_ylabel(f"{phase}, tokens a second")
        axis.set_xlabel("batch")
        axis.grid(alpha=0.3)
        axis.legend()
    _save(figure, path)


def plot_rt(rows: Sequence["StepRow"], path: Path) -> None:
    """Draw per tokenizer, mask and gap, over sequences: microseconds of a mid (line) and of a step (dotted)."""
    panels = list(dict.fromkeys((row.tokenizer, row.mask, row.gap_ms) for row in rows))
    figure, axes = _figure(len(panels), width=7, height=3.2)
    for axis, panel in zip(axes, panels, strict=True):
        shown = [row for row in rows if (row.tokenizer, row.mask, row.gap_ms) == panel]
        for number, variant in enumerate(dict.fromkeys(row.variant for row in shown)):
            own = [row for row in shown if row.variant == variant]
            sizes = [row.sequences for row in own]
            label = f"{variant.commands}, {variant.sync}, {variant.placement}"
            axis.plot(sizes, [row.mid_us() for row in own], "o-", color=f"C{number}", label=f"{label}: mid")
            axis.plot(sizes, [row.step_us() for row in own], "o:", color=f"C{number}", label=f"{label}: step")
        axis.set_xscale("log", base=2)
        axis.set_yscale("log")
        axis.set_ylabel("µs, median")
        axis.set_xlabel("sequences")
        axis.set_title(f"{panel[0]}: {panel[1]} masks, {f'every {panel[2]} ms' if panel[2] else 'hot'}")
        axis.grid(alpha=0.3)
        axis.legend()
    _save(figure, path)


def _figure(num_rows: int, *, width: float, height: float) -> tuple[Any, list[Any]]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(max(6.0, width), height * num_rows), layout="constrained")
    return figure, [figure.add_subplot(num_rows, 1, row + 1) for row in range(num_rows)]


def _save(figure: Any, path: Path) -> None:
    try:
        figure.savefig(path)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from error
