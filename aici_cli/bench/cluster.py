"""`aici bench cluster`: the speed of a pipeline of stages, and how soon it goes on after a failure."""

import contextlib
import json as json_text
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from aici_base.errors import AiciError, UnavailableError, UsageError
from aici_cli.bench.cluster_machines import BenchMachine, BenchNetwork
from aici_cli.bench.plot import check_plot, plot_cluster
from aici_cli.bench.serve import percentile
from aici_cli.output import print_json, say
from aici_cli.tables import print_table
from aici_engine.config import DTYPE_HELP

_KINDS: Final = ("plain", "regex")
_RECOVERY_BATCH: Final = 4
_LEAST_RECOVERY_TOKENS: Final = 160
_REPLAY_S: Final = 180.0
"""On a busy machine a stage takes long to start."""
_LINK_SIZES: Final = (64, 4 << 10, 36 << 10, 256 << 10, 1 << 20, 4 << 20)
"""Bytes. 36 KiB: the states of 16 tokens of the default model, in f32."""


def cluster(
    nodes: Annotated[
        list[int] | None, typer.Option(min=1, help="Machines in the pipeline; may be repeated (default: 1, 2, 3).")
    ] = None,
    batch: Annotated[
        list[int] | None, typer.Option(min=1, help="Requests at a time; may be repeated (default: 1, 4, 16).")
    ] = None,
    model: Annotated[str | None, typer.Option(help="A model's name, folder, .gguf file or hub repository.")] = None,
    dtype: Annotated[str, typer.Option(help=DTYPE_HELP)] = "int4",
    threads: Annotated[int, typer.Option(min=1, help="Threads per machine.")] = 1,
    pin: Annotated[bool, typer.Option("--pin", help="Give each machine as many cores of its own as threads.")] = False,
    prompt_tokens: Annotated[int, typer.Option(min=20, help="Tokens per prompt, about.")] = 60,
    num_tokens: Annotated[int, typer.Option(min=4, help="Tokens per answer.")] = 48,
    rounds: Annotated[int, typer.Option(min=1, help="Measurements per load.")] = 3,
    links: Annotated[bool, typer.Option(help="Measure a link alone: latency and bandwidth by size.")] = True,
    recovery: Annotated[bool, typer.Option(help="Break stages and links, and measure the recovery.")] = True,
    quick: Annotated[bool, typer.Option("--quick", help="A short version: a minute.")] = False,
    plot: Annotated[Path | None, typer.Option(help="Draw the results to this .svg or .png file.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Measure tokens per second, time to the first token, time between tokens, and recovery, by number of machines.

    Machines are network namespaces on one switch if the user is root, else processes on the loopback device. All share
    the cores of this machine, unless --pin divides them. `hop`: the time of a step on its way between the machines, and
    its share in the time between two tokens of a single request.
    """
    from aici_engine.store.resolve import resolve_model

    check_plot(plot)
    if quick:
        num_tokens, rounds = min(num_tokens, 24), 1
    loads = [(kind, size) for size in batch or ([1, 4] if quick else [1, 4, 16]) for kind in _KINDS]
    counts = nodes or ([1, 2] if quick else [1, 2, 3])
    cores = _cores(max(counts), threads) if pin else None
    folder = resolve_model(model, say=say)
    rows: list[dict[str, Any]] = []
    with BenchNetwork() as network, tempfile.TemporaryDirectory(prefix="aici-bench-") as work:
        say("machines: network namespaces" if network.is_real else f"machines: processes on loopback ({network.why})")
        if links:
            rows += _links(network, Path(work))
        for count in counts:
            max_num_seqs = max(_RECOVERY_BATCH, *(size for _, size in loads))
            setup = _Setup(folder, dtype, threads, cores, max_num_seqs, Path(work))
            with _pipeline(network, count, setup) as pipeline:
                for kind, size in loads:
                    say(f"{count} machines, batch {size}, {kind}: {rounds} rounds of {num_tokens} tokens")
                    order = _order(kind, size, num_tokens) | {"prompt_tokens": prompt_tokens}
                    pipeline.ask({"do": "load", **order, "num_tokens": 4})
                    seen = [pipeline.ask({"do": "load", **order}) for _ in range(rounds)]
                    rows.append(_speed_row(network, count, kind, size, seen))
                if recovery and count > 1:
                    rows += _recoveries(network, count, pipeline, max(num_tokens, _LEAST_RECOVERY_TOKENS))
    if plot is not None:
        plot_cluster([row for row in rows if row["measure"] == "speed"], plot)
    if json:
        print_json(rows)
    else:
        _print_tables(rows)


@dataclass(frozen=True)
class _Setup:
    """`cores`: those of each machine; `None`: all share all."""

    model: Path
    dtype: str
    threads: int
    cores: Sequence[Sequence[int]] | None
    max_num_seqs: int
    work: Path

    def pin(self, process: "subprocess.Popen[str]", number: int) -> None:
        """Keep the process, which starts just now, on the cores of machine `number`."""
        if self.cores is not None:
            os.sched_setaffinity(process.pid, self.cores[number])


def _cores(machines: int, threads: int) -> list[list[int]]:
    mine = sorted(os.sched_getaffinity(0))
    if machines * threads > len(mine):
        raise UsageError(
            f"--pin needs {machines * threads} cores for {machines} machines, and there are {len(mine)}",
            hint="measure fewer --nodes or --threads",
        )
    return [mine[number * threads :][:threads] for number in range(machines)]


@dataclass
class _Stage:
    """A stage that can be started again at the same address, with the same key."""

    machine: BenchMachine
    setup: _Setup
    number: int
    port: int = 0
    address: str = ""
    process: "subprocess.Popen[str] | None" = None

    def start(self) -> None:
        key, token = (self.setup.work / name for name in (f"{self.machine.name}.key", "token"))
        flags = ["--listen", f"tcp://{self.machine.address}:{self.port}", "--key-file", str(key)]
        flags += ["--model", str(self.setup.model), "--token-file", str(token), "--threads", str(self.setup.threads)]
        command = [sys.executable, "-P", "-m", "aici_cli", "stage", *flags]
        self.process = self.machine.start(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self.setup.pin(self.process, self.number)
        assert self.process.stdout is not None
        self.address = self.process.stdout.readline().strip()
        if not self.address.startswith("tcp://"):
            raise UnavailableError("a stage did not start", hint=f"run it to see why: aici stage {' '.join(flags)}")
        self.port = int(self.address.partition("#")[0].rpartition(":")[2])

    def kill(self) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()


@dataclass
class _MeasuredProcess:
    """The driver's process, and the stages before it."""

    process: "subprocess.Popen[str]"
    stages: Sequence[_Stage] = field(default_factory=list)

    def ask(self, order: Mapping[str, Any]) -> dict[str, Any]:
        self.send(order)
        return self.answer()

    def send(self, order: Mapping[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json_text.dumps(order) + "\n")
        self.process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        found: dict[str, Any] = json_text.loads(line) if line else {"error": "the driver's process ended"}
        if error := found.get("error"):
            raise AiciError(f"the pipeline failed: {error}")
        return found


@contextlib.contextmanager
def _pipeline(network: BenchNetwork, count: int, setup: _Setup) -> Iterator[_MeasuredProcess]:
    with contextlib.ExitStack() as stack:
        stages = [_Stage(network.machine(f"n{count}-stage{i}"), setup, i) for i in range(count - 1)]
        for stage in stages:
            stack.callback(stage.kill)
            stage.start()
        machine = network.machine(f"n{count}-driver")
        command = [sys.executable, "-P", "-m", "aici_cli.bench.cluster_driver"]
        process = machine.start(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        stack.callback(_end, process)
        setup.pin(process, count - 1)
        pipeline = _MeasuredProcess(process, stages)
        pipeline.ask(
            {
                "model_dir": str(setup.model),
                "dtype": setup.dtype,
                "num_threads": setup.threads,
                "max_num_seqs": setup.max_num_seqs,
                "stages": [stage.address for stage in stages],
                "cuts": _even_cuts(setup.model, count),
                "token_file": str(setup.work / "token") if stages else None,
                "replay_timeout_s": _REPLAY_S,
            }
        )
        yield pipeline


def _end(process: "subprocess.Popen[str]") -> None:
    assert process.stdin is not None
    process.stdin.close()
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _even_cuts(model: Path, count: int) -> list[int]:
    """Divide the layers over equal machines, the head counted as what it reads."""
    from aici_engine.cluster.headers import ModelSizes
    from aici_engine.cluster.plan import NodeInfo, PlanRequest, make_plan

    nodes = [NodeInfo(name=str(i), budget_bytes=1 << 60, bytes_per_s=1e9) for i in range(count)]
    request = PlanRequest(sizes=ModelSizes.of(model), dtype="int4", num_pages=1)
    plan = make_plan(request, nodes, driver=nodes[-1].name)
    return [stage.part.last for stage in plan.stages[:-1]]


def _order(kind: str, batch: int, num_tokens: int) -> dict[str, Any]:
    return {"kind": kind, "batch": batch, "num_tokens": num_tokens, "prompt_tokens": 60}


def _speed_row(
    network: BenchNetwork, count: int, kind: str, batch: int, seen: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    every = [(one["began"], times) for one in seen for times in one["times"]]
    gaps = [late - early for _, times in every for early, late in pairwise(times)]
    hops = [one["hop_s"] for one in seen if one["hop_s"] is not None]
    hop_s = statistics.median(hops) if hops else None
    p50 = percentile(gaps, 50)
    return {
        "measure": "speed",
        "machines": count,
        "network": network.kind,
        "kind": kind,
        "batch": batch,
        "tokens_per_s": batch / statistics.mean(gaps),
        "first_token_p50_ms": percentile([times[0] - began for began, times in every], 50) * 1000,
        "inter_token_p50_ms": p50 * 1000,
        "inter_token_p95_ms": percentile(gaps, 95) * 1000,
        "hop_ms": None if hop_s is None else hop_s * 1000,
        "hop_share": None if hop_s is None or batch > 1 else hop_s / p50,
    }


def _links(network: BenchNetwork, work: Path) -> list[dict[str, Any]]:
    """Measure a link between two machines, in frames as of a pipeline, encrypted."""
    from aici_engine.cluster.token import ClusterToken

    say("a link between two machines")
    near, far = network.machine("link-near"), network.machine("link-far")
    ClusterToken.read_or_create(work / "token")
    command = [sys.executable, "-P", "-m", "aici_cli.bench.cluster_links"]
    token, sizes = str(work / "token"), map(str, _LINK_SIZES)
    with far.start([*command, "echo", far.address, token], stdout=subprocess.PIPE) as echo:
        try:
            assert echo.stdout is not None
            address = echo.stdout.readline().strip()
            with near.start([*command, "ping", address, token, *sizes], stdout=subprocess.PIPE) as ping:
                said = ping.communicate()[0]
        finally:
            echo.kill()
    if not said:
        raise AiciError("the link between two machines could not be measured")
    return [{"measure": "link", "network": network.kind, **row} for row in json_text.loads(said)]


def _recoveries(
    network: BenchNetwork, count: int, pipeline: _MeasuredProcess, num_tokens: int
) -> Iterator[dict[str, Any]]:
    """Kill the first stage, which starts again at once; then cut its link until the loss is noticed."""
    order = _order("plain", _RECOVERY_BATCH, num_tokens)
    for event in ("stage killed", "link down")[: 1 + network.is_real]:
        say(f"{count} machines, {event}")
        row = {"measure": "recovery", "machines": count, "network": network.kind, "event": event}
        try:
            yield row | _recover(event, pipeline, order) | {"error": ""}
        except AiciError as error:
            yield row | {"noticed_ms": None, "next_token_ms": None, "same_text": None, "error": error.message}
            return


def _recover(event: str, pipeline: _MeasuredProcess, order: Mapping[str, Any]) -> dict[str, Any]:
    stage = pipeline.stages[0]
    pipeline.send({"do": "recover", **order})
    pipeline.answer()
    broken = time.monotonic()
    if event == "stage killed":
        stage.kill()
        stage.start()
    else:
        stage.machine.set_link("down")
    try:
        noticed = pipeline.answer()["noticed"]
    finally:
        if event == "link down":
            stage.machine.set_link("up")
    end = pipeline.answer()
    nexts = [min((at for at in times if at > noticed), default=0.0) - broken for times in end["times"]]
    if min(nexts) < 0:
        raise AiciError("a request ended before the failure was noticed: this machine is too busy to measure")
    return {
        "noticed_ms": (noticed - broken) * 1000,
        "next_token_ms": max(nexts) * 1000,
        "same_text": end["same"],
    }


def _print_tables(rows: Sequence[Mapping[str, Any]]) -> None:
    speeds = [row for row in rows if row["measure"] == "speed"]
    print(f"machines: {speeds[0]['network']}; times in ms")
    print_table(
        ("kind", "machines", "batch", "tokens/s", "first p50", "inter p50", "inter p95", "hop", "share"),
        (
            (
                row["kind"],
                row["machines"],
                row["batch"],
                f"{row['tokens_per_s']:.1f}",
                f"{row['first_token_p50_ms']:.1f}",
                f"{row['inter_token_p50_ms']:.2f}",
                f"{row['inter_token_p95_ms']:.2f}",
                "" if row["hop_ms"] is None else f"{row['hop_ms']:.2f}",
                "" if row["hop_share"] is None else f"{100 * row['hop_share']:.0f} %",
            )
            for row in speeds
        ),
    )
    links = [row for row in rows if row["measure"] == "link"]
    if links:
        print("\na link between two machines, encrypted: round trips in µs, a stream in one direction in MB/s")
        names = ("round_trip_p50_us", "round_trip_p99_us", "megabytes_per_s")
        print_table(
            ("bytes", "p50", "p99", "MB/s"), ([row["bytes"], *(f"{row[name]:.1f}" for name in names)] for row in links)
        )
    recoveries = [row for row in rows if row["measure"] == "recovery"]
    if recoveries:
        print(f"\nrecovery of {_RECOVERY_BATCH} requests; times from the failure on")
        print_table(("event", "machines", "noticed", "next token", "same text"), map(_recovery_cells, recoveries))


def _recovery_cells(row: Mapping[str, Any]) -> list[object]:
    if row["error"]:
        return [f"{row['event']}: {row['error']}", row["machines"]]
    same = "yes" if row["same_text"] else "NO"
    return [row["event"], row["machines"], f"{row['noticed_ms']:.0f}", f"{row['next_token_ms']:.0f}", same]
