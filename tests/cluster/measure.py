"""Figures of a pipeline on machines of its own: `python -m tests.cluster.measure idle|faults|restart [--model NAME]`.

`idle`: processor time of each process at rest. `faults`: each failure several times, busy and at rest: when it is
noticed and when texts go on. `restart`: the engine process is killed; when the next text comes, what the stages read.
Every figure depends on the load of the machine, which is printed.
"""

import argparse
import asyncio
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

from aici_engine.store.resolve import resolve_model
from tests.engine.support import write_tiny_model
from tests.support import netns
from tests.support.faults import FAULTS, bytes_read, cpu_seconds, named, noticed_after, settle
from tests.support.pipelines import Outcome, Pipeline, ask, client, request, together
from tests.support.processes import command, descendants, wait_until

_WINDOW_S = 20.0


def idle(pipeline: Pipeline) -> None:
    settle(pipeline)
    time.sleep(2)
    pids = {f"stage {number}": stage.process.pid for number, stage in enumerate(pipeline.stages)}
    below = {pipeline.server.process.pid, *descendants(pipeline.server.process.pid)}
    pids |= {f"{command(pid)} {pid}": pid for pid in below}
    before = {name: cpu_seconds(pid) for name, pid in pids.items()}
    time.sleep(_WINDOW_S)
    for name, pid in pids.items():
        print(f"{name:<24}{100 * (cpu_seconds(pid) - before[name]) / _WINDOW_S:7.3f} % of a core at rest")


def faults(pipeline: Pipeline, times: int) -> None:
    for busy in (True, False):
        for name in FAULTS:
            for number in range(len(pipeline.stages)):
                got = [_one_fault(pipeline, name, number, busy=busy) for _ in range(times)]
                noticed, mended, recovered = ([each[i] for each in got] for i in range(3))
                print(
                    f"{name:<10} of stage {number}, {'busy' if busy else 'at rest':<8} noticed {_spread(noticed)}   "
                    f"repair took {_spread(mended)}   next text after the repair {_spread(recovered)}",
                    flush=True,
                )


def _one_fault(pipeline: Pipeline, name: str, number: int, *, busy: bool) -> tuple[float, float, float]:
    """Return the seconds until the failure was noticed, of the repair, and from the repair to the next text."""
    stage, fault = pipeline.stages[number], FAULTS[name]
    settle(pipeline)

    async def main() -> tuple[float, float, float]:
        async with client(pipeline.server.url) as http:
            outcomes = [Outcome() for _ in range(4)]
            bodies = [request("plain", seed, 1500) for seed in range(4)]
            runs = [ask(http, body, into=into) for body, into in zip(bodies, outcomes, strict=True)]
            tasks = [asyncio.create_task(run) for run in runs] if busy else []
            while busy and not all(outcome.times for outcome in outcomes):
                await asyncio.sleep(0.01)
            began = time.monotonic()
            await asyncio.to_thread(fault.hurt, stage)
            noticed = await asyncio.to_thread(noticed_after, pipeline, began, 20)
            repair = time.monotonic()
            await asyncio.to_thread(fault.mend, stage)
            mended = time.monotonic()
            if not busy:
                tasks = [asyncio.create_task(run) for run in runs]
            while not all(outcome.times and outcome.times[-1] > mended for outcome in outcomes):
                await asyncio.sleep(0.002)
                assert not any(task.done() for task in tasks), outcomes
            recovered = max(outcome.gap_after(mended) or 0 for outcome in outcomes)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            return noticed, mended - repair, recovered

    return asyncio.run(main())


def restart(pipeline: Pipeline, times: int) -> None:
    bodies = [request("plain", 0, 20)]
    for _ in range(times):
        pids = [stage.process.pid for stage in pipeline.stages]
        read = [bytes_read(pid) for pid in pids]
        [engine] = named(pipeline, "aici-engine")
        os.kill(engine, 9)
        began = time.monotonic()
        assert wait_until(lambda: asyncio.run(together(pipeline.server.url, bodies))[0].errors == [], 120)
        took = time.monotonic() - began
        more = [bytes_read(pid) - then for pid, then in zip(pids, read, strict=True)]
        same = pids == [stage.process.pid for stage in pipeline.stages]
        print(
            f"engine killed: a text after {took:.2f} s; the stages' processes are the same: {same}; read {more} bytes"
        )
    print("\n".join(line for _, line in pipeline.server.said.lines if "complete" in line or "attach" in line))


def _spread(values: list[float]) -> str:
    return f"{statistics.median(values):6.3f} s ({min(values):.3f} to {max(values):.3f})"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["idle", "faults", "restart"], nargs="+")
    parser.add_argument("--model", help="a model of `aici serve --model`; default: a tiny random model of 6 layers")
    parser.add_argument("--cuts", default="2,4")
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--relays", action="store_true", help="needed by half-open links; adds to every hop")
    args = parser.parse_args()
    if reason := netns.missing():
        print(reason, file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="aici-measure-") as name, netns.Network() as network:
        folder = Path(name)
        tiny = folder / "tiny"
        model = resolve_model(args.model) if args.model else write_tiny_model(tiny, context=2048, num_layers=6)
        cuts = tuple(map(int, args.cuts.split(",")))
        pipeline = Pipeline(network, model, folder, cuts, relayed=args.relays or "faults" in args.what)
        for what in args.what:
            print(f"== {what}, load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
            if what == "idle":
                idle(pipeline)
            elif what == "faults":
                faults(pipeline, args.times)
            else:
                restart(pipeline, args.times)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
