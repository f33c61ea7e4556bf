"""The results of `aici bench engine`: rows of figures, and tables."""

import statistics
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, cast

from aici_cli.bench.engines.compare import OURS, Plan, Result
from aici_cli.tables import print_table
from aici_engine.cluster.headers import ModelSizes

if TYPE_CHECKING:
    from aici_engine.config import Dtype

_SPEEDS: Final = ("engine", "weights", "batch", "prefill", "×", "decode", "×", "step ms", "same", "× limit")
_COSTS: Final = ("engine", "weights", "version", "start s", "load s", "MB now", "MB peak")


def speeds(results: Sequence[Result], plan: Plan) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    reference = next((result for result in results if result.entry.form == "float32" and result.cells), results[0])
    for result in results:
        for batch, cell in result.cells.items():
            best = {phase: _best_peer(results, batch, phase) for phase in ("prefill", "decode")}
            row = _head(result, "speed") | {"device": plan.device, "threads": plan.threads, "batch": batch}
            for phase, values in (("prefill", cell.prefill), ("decode", cell.decode)):
                row[f"{phase}_tokens_per_s"] = statistics.median(values)
                row[f"{phase}_rounds"] = values
                other = best[phase]
                row[f"{phase}_best_peer"] = other.entry.name if other else None
                row[f"{phase}_to_best_peer"] = _paired(values, getattr(other.cells[batch], phase)) if other else None
            tokens = reference.cells[batch].first_tokens if batch in reference.cells else []
            same = [a == b for a, b in zip(cell.first_tokens, tokens, strict=False)]
            row["same_first_tokens"] = statistics.fmean(same) if same else None
            row["step_ms"] = 1000 * batch / row["decode_tokens_per_s"]
            rows.append(row)
    return rows


def _paired(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Return the median of paired ratios. A round that only one engine finished does not count."""
    return statistics.median(a / b for a, b in zip(ours, theirs, strict=False))


def _best_peer(results: Sequence[Result], batch: int, phase: str) -> Result | None:
    peers = [result for result in results if result.entry.engine != OURS and batch in result.cells]
    return max(peers, key=lambda result: statistics.median(getattr(result.cells[batch], phase)), default=None)


def costs(results: Sequence[Result], plan: Plan, bandwidth: float) -> list[dict[str, Any]]:
    """Return load time and memory of every engine, and for ours the speed limit by memory bandwidth at batch 1."""
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
        if result.entry.engine == OURS and plan.device == "cpu":
            sizes = ModelSizes.of(plan.model)
            row["weight_bytes"] = sizes.read_bytes(sizes.whole, cast("Dtype", result.entry.form))
            row["limit_tokens_per_s"] = bandwidth / row["weight_bytes"]
        rows.append(row)
    return rows


def _head(result: Result, measure: str) -> dict[str, Any]:
    return {"measure": measure, "engine": result.entry.title, "form": result.entry.form}


def print_tables(rows: Sequence[Mapping[str, Any]], plan: Plan, bandwidth: float) -> None:
    print(f"{plan.device}, {plan.threads} threads; tokens a second, medians over {plan.rounds} rounds;")
    print("× = median of paired ratios to the best peer in the column;")
    print("same = share of first tokens equal to those of float32 (or of the first engine)")
    every = {(row["engine"], row["form"]): row for row in rows if row["measure"] == "costs"}
    reached = sorted((row for row in rows if row["measure"] == "speed"), key=lambda row: row["batch"])
    limits = {key: row.get("limit_tokens_per_s") for key, row in every.items()}
    print_table(_SPEEDS, (_speed_cells(row, limits[row["engine"], row["form"]]) for row in reached), num_left=2)
    print(f"\nmemory bandwidth {bandwidth / 1e9:.1f} GB/s; × limit: time of a step / time to read the weights")
    print_table(_COSTS, map(_cost_cells, every.values()), num_left=3)
    for row in every.values():
        if row["error"]:
            print(f"{row['engine']} {row['form']}: {row['error']}")


def _speed_cells(row: Mapping[str, Any], limit: float | None) -> tuple[str, ...]:
    return (
        row["engine"],
        row["form"],
        str(row["batch"]),
        f"{row['prefill_tokens_per_s']:.0f}",
        _times(row["prefill_to_best_peer"]),
        f"{row['decode_tokens_per_s']:.1f}",
        _times(row["decode_to_best_peer"]),
        f"{row['step_ms']:.2f}",
        _percent(row["same_first_tokens"]),
        f"{limit / row['decode_tokens_per_s']:.2f}" if limit and row["batch"] == 1 else "",
    )


def _cost_cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    times = f"{row['start_s']:.1f}", f"{row['load_s']:.1f}"
    sizes = f"{row['now_bytes'] / 1e6:.0f}", f"{row['peak_bytes'] / 1e6:.0f}"
    return row["engine"], row["form"], row["version"], *times, *sizes


def _times(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:.2f}"


def _percent(share: float | None) -> str:
    return "" if share is None else f"{share:.0%}"
