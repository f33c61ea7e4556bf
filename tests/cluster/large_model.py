"""A model that no machine could hold runs on three of unequal memory: `python -m tests.cluster.large_model`.

One command a machine: `aici serve --cluster` and two `aici node join`. Prints what the plan said about memory and
speed, and what happened. Needs root, like tests/support/netns.py.
"""

import argparse
import asyncio
import contextlib
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.support import netns
from tests.support.cli import AICI
from tests.support.clusters import ServedCluster, processes_in
from tests.support.faults import anonymous_bytes, put_first
from tests.support.pipelines import Outcome, request, together
from tests.support.random_llama import write_random_llama

_MIB = 1 << 20
_CONTEXT, _SEQUENCES = 512, 2
_PROCESS_MIB = 320  # what a node sets aside for the process of its stage (`node_info.process_bytes`)
_PARTS_MIB = {"a": 780, "b": 660, "head": 600}
_RAY_MIB, _SERVER_MIB = 450, 300
"""Ray of one machine, and the server with its runtime. The head also has Ray's own store of the nodes."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, help="a folder; default: a random Llama of 1.5 GB")
    parser.add_argument("--layers", type=int, default=17, help="of the random Llama")
    parser.add_argument("--real-time", action="store_true", help="before all other processes, as on a quiet machine")
    args = parser.parse_args()
    if reason := netns.missing():
        print(reason, file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="aici-large-") as name:
        folder = Path(name)
        model = args.model or folder / "model"
        if args.model is None:
            print(f"the model has {write_random_llama(model, num_layers=args.layers):,} bytes")
        with netns.Network() as network:
            _run(network, model, folder, real_time=args.real_time)
    return 0


def _run(network: netns.Network, model: Path, folder: Path, *, real_time: bool) -> None:
    limits = {name: (part + _PROCESS_MIB + _RAY_MIB) * _MIB for name, part in _PARTS_MIB.items()}
    limits["head"] += _SERVER_MIB * _MIB
    print(f"limits of the machines: { {name: limit // _MIB for name, limit in limits.items()} } MiB")
    cluster = ServedCluster(network, folder, model=model, head_bytes=limits["head"])
    address = f"{cluster.head.address}:4243"
    sizes = ("--dtype", "bfloat16", "--max-context", str(_CONTEXT), "--max-num-seqs", str(_SEQUENCES))
    memory = {name: f"{part + _PROCESS_MIB}MiB" for name, part in _PARTS_MIB.items()}
    began = time.monotonic()
    server = cluster.serve(
        "--cluster", "--cluster-address", address, "--min-nodes", "2", "--memory", memory["head"], *sizes
    )
    server.wait_for(lambda line: "aici node join" in line)
    for name in "ab":
        node = cluster.join(name, address, memory=memory[name], limit_bytes=limits[name])
        node.wait_for(lambda line: line.startswith("tcp://"))  # one measures its speed after the other
    cluster.wait_ready()
    print(f"ready after {time.monotonic() - began:.1f} s, load {os.getloadavg()[0]:.1f}; the plan:")
    print("".join(line for line in server.said if "plan: " in line))
    empty = _empty_stage_bytes(cluster, folder)
    print(f"a stage without a model holds {empty // _MIB} MiB")
    pids = {name: processes_in(network.machines[name], " stage ")[0] for name in "ab"}
    pids["head"] = processes_in(cluster.head, "engine_process.main")[0]
    for name, pid in pids.items():
        held, machine = anonymous_bytes(pid), network.machines[name]
        peak = f", machine's peak {machine.memory_peak_bytes() // _MIB} MiB" if machine.memory_limit == "cgroup" else ""
        print(f"{name}: holds {held // _MIB} MiB, {(held - empty) // _MIB} beside an empty stage{peak}")
    if real_time:
        for pid in pids.values():
            put_first(pid)
    for body in (request("schema", 0), request("schema", 1), request("regex", 0, 60)):
        [outcome] = asyncio.run(together(cluster.url, [body]))
        _say(outcome)


def _empty_stage_bytes(cluster: ServedCluster, folder: Path) -> int:
    """Memory of the process of a stage beside weights, pages and scratch memory."""
    command = [*AICI, "stage", "--listen", "tcp://127.0.0.1:0", "--model", str(cluster.model)]
    environment = {**os.environ, "XDG_CONFIG_HOME": str(folder), "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as stage:
        assert stage.stdout is not None
        try:
            stage.stdout.readline()
            return anonymous_bytes(stage.pid)
        finally:
            with contextlib.suppress(ProcessLookupError):
                stage.kill()


def _say(outcome: Outcome) -> None:
    text = "".join(outcome.texts.values())
    gaps = sorted(after - before for before, after in zip(outcome.times, outcome.times[1:], strict=False))
    print(f"{outcome.ends} {outcome.errors} {text!r}")
    if gaps:
        print(f"  between texts: median {1000 * gaps[len(gaps) // 2]:.0f} ms, load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    raise SystemExit(main())
