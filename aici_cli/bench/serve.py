"""`aici bench serve`: latency and throughput for clients of a server, by number of clients and by request rate."""

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from aici_base.errors import AiciError, UnavailableError, UsageError
from aici_cli.bench.plot import check_plot, plot_serve
from aici_cli.output import print_json, say
from aici_cli.tables import print_table
from aici_cli.vllm_flags import ARGS_HELP, ENGINE_HELP, PYTHON_HELP, EngineName, engine_flags

_PROMPTS = [f"Chapter {number}. It was a quiet morning in the village, and" for number in range(1, 65)]
_PATTERN = r"[a-zA-Z0-9 ,.]{4000}"
"""Never ends before `--num-tokens`, so that all requests have the same number of tokens."""
_KINDS = ("plain", "regex")
_SEED = 1


def serve(
    server: Annotated[str | None, typer.Option(help="A running server (default: start one).")] = None,
    model: Annotated[str | None, typer.Option(help="The model of the started server.")] = None,
    replicas: Annotated[str, typer.Option(metavar="N|A:B", help="Replicas of the started server.")] = "1",
    engine: Annotated[EngineName, typer.Option(help=ENGINE_HELP)] = "native",
    engine_python: Annotated[Path | None, typer.Option(metavar="PATH", help=PYTHON_HELP)] = None,
    engine_args: Annotated[str | None, typer.Option(metavar="FLAGS", help=ARGS_HELP)] = None,
    concurrency: Annotated[
        list[int] | None, typer.Option(min=1, help="Concurrent clients; may be repeated (default: 1, 2, 4 ... 64).")
    ] = None,
    rate: Annotated[
        list[float] | None,
        typer.Option(
            min=0.001, help="Requests per second; may be repeated (default: 25, 50 and 75 % of the measured maximum)."
        ),
    ] = None,
    num_tokens: Annotated[int, typer.Option(min=2, help="Tokens per answer.")] = 32,
    rounds: Annotated[int, typer.Option(min=1, help="Measurements per load.")] = 2,
    quick: Annotated[bool, typer.Option("--quick", help="A short version: a minute.")] = False,
    plot: Annotated[Path | None, typer.Option(help="Draw the results to this .svg or .png file.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Measure time to the first token, time between tokens, and tokens per second, with and without a constraint.

    First with clients that send one request after the other, then with random arrivals at a fixed rate. Times are the
    client's and include connection, queue and network. At a fixed rate, times count from the due time of a request.
    """
    check_plot(plot)
    if server is not None and replicas != "1":
        raise UsageError("--replicas is for a started server", hint="give the running server the flag")
    if server is not None and model is not None:
        raise UsageError("--model is for a started server", hint="a running server has its models")
    flags = ["--replicas", replicas, *engine_flags(engine, engine_python, engine_args)]
    if server is not None and engine != "native":
        raise UsageError("--engine is for a started server", hint="give the running server the flag")
    if quick:
        num_tokens, rounds = min(num_tokens, 16), 1
    levels = concurrency or ([1, 4, 16] if quick else [1, 2, 4, 8, 16, 32, 64])
    with _server(server, model, max(levels), flags) as (url, headers):
        bench = _Bench(url, headers, num_tokens)
        bench.measure("warm-up", {"concurrency": 2, "num_requests": 4}, 1)
        rows = []
        for clients in levels:
            rows += bench.measure(
                f"{clients} clients", {"concurrency": clients, "num_requests": max(8, 2 * clients)}, rounds
            )
        most = max((row["requests_per_s"] for row in rows if row["kind"] == "plain"), default=1.0)
        for per_s in rate or [round(part * most, 2) for part in ((0.5,) if quick else (0.25, 0.5, 0.75))]:
            how = {"rate": per_s, "num_requests": 16 if quick else 40, "seed": _SEED}
            rows += bench.measure(f"{per_s:g} requests/s", how, rounds)
    if plot is not None:
        plot_serve(rows, plot)
    if json:
        print_json(rows)
    else:
        _print_table(rows, num_tokens)


class _Bench:
    def __init__(self, url: str, headers: Mapping[str, str], num_tokens: int) -> None:
        self._plan = {"url": url, "headers": dict(headers)}
        both = {"max_tokens": num_tokens, "return_tokens": True}
        plain = both | {"controller": "none", "ignore_eos": True}
        regex = both | {"controller": "regex", "controller_arg": _PATTERN}
        self._bodies = {
            "plain": [plain | {"controller_arg": prompt} for prompt in _PROMPTS],
            "regex": [regex | {"prompt": prompt} for prompt in _PROMPTS],
        }

    def measure(self, name: str, how: Mapping[str, float], rounds: int) -> list[dict[str, Any]]:
        """Return one row per kind of request. The kinds alternate in every round."""
        say(f"{name}: {rounds} rounds of {how['num_requests']} requests of each kind")
        runs: dict[str, list[list[dict[str, Any]]]] = {kind: [] for kind in _KINDS}
        for _ in range(rounds):
            for kind in _KINDS:
                runs[kind].append(self._load(kind, how))
        plain_per_s = [_tokens_per_s(run) for run in runs["plain"]]
        rows = [_row(name, kind, how, runs[kind]) for kind in _KINDS]
        for row in rows:
            # Of rounds, so that a machine that slows down between two rounds does not count.
            row["to_plain"] = statistics.median(
                _tokens_per_s(run) / plain if plain else math.nan
                for run, plain in zip(runs[row["kind"]], plain_per_s, strict=True)
            )
        say(", ".join(f"{row['kind']} {row['tokens_per_s']:.1f} tokens/s (× {row['to_plain']:.3f})" for row in rows))
        return rows

    def _load(self, kind: str, how: Mapping[str, float]) -> list[dict[str, Any]]:
        import json
        import subprocess
        import sys

        plan = json.dumps(self._plan | {"bodies": self._bodies[kind], "how": how})
        command = [sys.executable, "-P", "-m", "aici_cli.bench.load"]
        done = subprocess.run(command, input=plan, stdout=subprocess.PIPE, text=True, check=True)
        seen: list[dict[str, Any]] = json.loads(done.stdout)
        return seen


def _row(name: str, kind: str, how: Mapping[str, float], runs: Sequence[Sequence[Mapping[str, Any]]]) -> dict[str, Any]:
    every = [one for run in runs for one in run]
    errors = [one["error"] for one in every if one["error"]]
    good = [one for one in every if not one["error"]]
    if not good:
        raise AiciError(f"every request failed: {errors[0]}")
    firsts = [one["tokens_at"][0] - one["due"] for one in good]
    gaps = [late - early for one in good for early, late in zip(one["tokens_at"], one["tokens_at"][1:], strict=False)]
    seconds = sum(_seconds(run) for run in runs)
    return {
        "load": name,
        "kind": kind,
        **how,
        "requests": len(every),
        "errors": len(errors),
        "first_error": errors[0] if errors else "",
        "first_token_p50_ms": percentile(firsts, 50) * 1000,
        "first_token_p99_ms": percentile(firsts, 99) * 1000,
        "inter_token_p50_ms": percentile(gaps, 50) * 1000,
        "inter_token_p99_ms": percentile(gaps, 99) * 1000,
        "total_p50_ms": statistics.median(one["ended"] - one["due"] for one in good) * 1000,
        "tokens_per_s": sum(one["num_tokens"] for one in good) / seconds,
        "requests_per_s": len(good) / seconds,
    }


def _seconds(run: Sequence[Mapping[str, Any]]) -> float:
    """Return the time of a round. Requests overlap: it is not the sum over the requests."""
    return float(max(one["ended"] for one in run) - min(one["due"] for one in run))


def _tokens_per_s(run: Sequence[Mapping[str, Any]]) -> float:
    return float(sum(one["num_tokens"] for one in run if not one["error"])) / _seconds(run)


def percentile(values: Sequence[float], percent: float) -> float:
    """Return the percentile as a measured value, without interpolation."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(percent / 100 * len(ordered)) - 1)]


@contextmanager
def _server(
    url: str | None, model: str | None, max_num_seqs: int, flags: Sequence[str]
) -> Iterator[tuple[str, Mapping[str, str]]]:
    """Yield the URL of `/v1` and the headers with the key."""
    from aici.remote.address import split_url

    if url is not None:
        yield split_url(url)
        return
    options = ["--max-num-seqs", str(max_num_seqs), *flags]
    # As many sequences as clients: no request waits in a queue. `--server` can measure a queue.
    with started_server(model, *options) as started:
        yield split_url(started)


@contextmanager
def started_server(model: str | None, *flags: str) -> Iterator[str]:
    """Run `aici serve FLAGS` on a free port, and yield its address."""
    import re
    import signal
    import subprocess
    import sys
    import threading

    options = ["--port", "0", *flags, *([] if model is None else ["--model", model])]
    command = [sys.executable, "-P", "-m", "aici_cli", "serve", *options, "--log-format", "text"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, process_group=0) as process:
        assert process.stderr is not None
        said = []
        try:
            for line in process.stderr:
                said.append(line)
                if found := re.search(r"serving .* at (http://\S+)", line):
                    break
            else:
                raise UnavailableError(f"the server did not start: {''.join(said).strip()}")
            say(line.rstrip())
            # Read stderr on: a full pipe would block the server.
            threading.Thread(target=process.stderr.read, daemon=True).start()
            yield found[1]
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait()


def _print_table(rows: Sequence[Mapping[str, Any]], num_tokens: int) -> None:
    print(f"answers of {num_tokens} tokens; times in ms, as the client sees them")
    print("× = tokens/s as a multiple of those without a constraint: the median of the rounds")
    names = (
        "first_token_p50_ms", "first_token_p99_ms", "inter_token_p50_ms", "inter_token_p99_ms", "total_p50_ms",
        "tokens_per_s", "requests_per_s", "to_plain",
    )  # fmt: skip
    print_table(
        (
            "load",
            "kind",
            "requests",
            "errors",
            "first p50",
            "first p99",
            "inter p50",
            "inter p99",
            "total p50",
            "tokens/s",
            "requests/s",
            "×",
        ),
        (
            [row["load"], row["kind"], row["requests"], row["errors"], *(f"{row[name]:.2f}" for name in names)]
            for row in rows
        ),
        num_left=2,
    )
    for row in rows:
        if row["errors"]:
            print(f"{row['load']}, {row['kind']}: {row['first_error']}")
