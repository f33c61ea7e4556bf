"""A model that no machine could hold runs on three of unequal memory: `python -m tests.cluster.large_model`.

Prints what the plan said about memory and speed, and what happened. Needs root, like tests/support/netns.py.
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.support import netns
from tests.support.cli import AICI
from tests.support.faults import anonymous_bytes, named, put_first
from tests.support.pipelines import Outcome, Pipeline, request, together
from tests.support.random_llama import write_random_llama

_MIB = 1 << 20
_CONTEXT, _SEQUENCES = 512, 2
_SIZES = (f"--context={_CONTEXT}", f"--sequences={_SEQUENCES}", "--dtype=bfloat16")
_PARTS_MIB = (700, 600, 560)
_STAGE_MIB, _DRIVER_MIB = 350, 600
"""For the processes beside weights, cache and scratch memory; the driver has an engine, a server and a runtime."""
_RATE = """
from aici_engine.cluster.node_info import describe_node
print(describe_node(memory_bytes=None, num_threads=1).bytes_per_s)
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, help="a folder; default: a random Llama of 1.5 GB")
    parser.add_argument("--real-time", action="store_true", help="before all other processes, as on a quiet machine")
    args = parser.parse_args()
    if reason := netns.missing():
        print(reason, file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="aici-large-") as name:
        folder = Path(name)
        model = args.model or folder / "model"
        if args.model is None:
            print(f"the model has {write_random_llama(model):,} bytes")
        with netns.Network() as network:
            _run(network, model, folder, real_time=args.real_time)
    return 0


def _run(network: netns.Network, model: Path, folder: Path, *, real_time: bool) -> None:
    nodes, plan = _plan(model, _measured_rate(real_time))
    said = subprocess.run([*AICI, "cluster", "plan", str(model), *nodes, *_SIZES], capture_output=True, text=True)
    print(said.stdout)
    said = subprocess.run([*AICI, "cluster", "plan", str(model), nodes[0], *_SIZES], capture_output=True, text=True)
    print(f"alone: {said.stderr.strip()}\n")
    cuts = tuple(stage["last"] for stage in plan["stages"][:-1])
    beside = (_STAGE_MIB, _STAGE_MIB, _DRIVER_MIB)
    limits = tuple((part + more) * _MIB for part, more in zip(_PARTS_MIB, beside, strict=True))
    print(f"limits of the machines: {[limit // _MIB for limit in limits]} MiB, load {os.getloadavg()[0]:.1f}")
    began = time.monotonic()
    serve_args = ("--dtype", "bfloat16", "--max-context", str(_CONTEXT), "--max-num-seqs", str(_SEQUENCES))
    pipeline = Pipeline(
        network,
        model,
        folder,
        cuts,
        serve_args=serve_args,
        memory_bytes=limits,
        stage_memory=tuple(f"{mib + _STAGE_MIB}MiB" for mib in _PARTS_MIB[:-1]),
    )
    print(f"ready after {time.monotonic() - began:.1f} s")
    for number, stage in enumerate(pipeline.stages):
        peak = stage.machine.memory_peak_bytes() // _MIB
        print(f"stage {number}: holds {anonymous_bytes(stage.process.pid) // _MIB} MiB, machine's peak {peak} MiB")
    [engine] = named(pipeline, "aici-engine")
    print(f"driver: the engine holds {anonymous_bytes(engine) // _MIB} MiB, ", end="")
    print(f"machine's peak {pipeline.driver.memory_peak_bytes() // _MIB} MiB")
    if real_time:
        for pid in (engine, *(stage.process.pid for stage in pipeline.stages)):
            put_first(pid)
    for number in range(2):
        [outcome] = asyncio.run(together(pipeline.server.url, [request("schema", number)]))
        _say(outcome)
    before = _measured_rate(real_time)
    [outcome] = asyncio.run(together(pipeline.server.url, [request("regex", 0, 60)]))
    _say(outcome)
    for rate in (before, _measured_rate(real_time)):
        step_s = _plan(model, rate)[1]["speed"][0]["step_s"]
        print(f"expected at the {rate / 1e9:.1f} GB/s measured just before or after: {1000 * step_s:.0f} ms a step")


def _plan(model: Path, rate: float) -> tuple[list[str], dict[str, Any]]:
    nodes = [f"--node={name}={mib}MiB:{rate / 1e9:.2f}GB/s" for name, mib in zip("abc", _PARTS_MIB, strict=True)]
    argv = [*AICI, "cluster", "plan", str(model), *nodes, *_SIZES, "--json"]
    return nodes, json.loads(subprocess.run(argv, capture_output=True, text=True, check=True).stdout)


def _say(outcome: Outcome) -> None:
    text = "".join(outcome.texts.values())
    gaps = sorted(after - before for before, after in zip(outcome.times, outcome.times[1:], strict=False))
    print(f"{outcome.ends} {outcome.errors} {text!r}")
    if gaps:
        print(f"  between texts: median {1000 * gaps[len(gaps) // 2]:.0f} ms, load {os.getloadavg()[0]:.1f}")


def _measured_rate(real_time: bool) -> float:
    argv = [*(["chrt", "-f", "10"] if real_time else []), sys.executable, "-P", "-c", _RATE]
    return float(subprocess.run(argv, capture_output=True, text=True, check=True).stdout)


if __name__ == "__main__":
    raise SystemExit(main())
