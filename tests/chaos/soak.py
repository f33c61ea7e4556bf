"""Hours of ordinary requests, and the memory of every process: `python -m tests.chaos.soak --minutes 60`.

The slope of each kind of process is a least-squares line over its samples, with its standard error. The samples of one
process are not independent: the error is computed from the means of blocks.
"""

import argparse
import asyncio
import itertools
import random
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

import httpx2 as httpx
import numpy as np

from aici_controllers.catalog import guest_path
from tests.chaos.clients import Ends, Target, client
from tests.chaos.served import Served, write_chat_model
from tests.support.processes import command, descendants

_NUM_BLOCKS = 20
_WARM_UP = 0.15
"""The share of the samples that do not count: caches and templates fill up."""


class Sample(NamedTuple):
    """`private_mib`: the memory of the process that it shares with no other. `number`: of its processes."""

    at_s: float
    private_mib: float
    number: int


async def _soak(served: Served, *, minutes: float, num_clients: int, every_s: float) -> dict[str, list[Sample]]:
    ends, rng = Ends(), random.Random(1)
    samples: dict[str, list[Sample]] = defaultdict(list)
    until = time.monotonic() + 60 * minutes
    async with httpx.AsyncClient(base_url=served.url, timeout=300) as http:
        target = Target(http, served.url, guest_path("regex").read_bytes(), ends)
        asking = [
            asyncio.create_task(client(target, random.Random(rng.random()), lambda: time.monotonic() < until))
            for _ in range(num_clients)
        ]
        began = time.monotonic()
        for turn in itertools.count(1):
            await asyncio.wait(asking, timeout=max(0, began + turn * every_s - time.monotonic()))
            if time.monotonic() >= until:
                break
            for name, sizes in _memory(served).items():
                samples[name].append(Sample(time.monotonic() - began, sum(sizes), len(sizes)))
            if turn % 30 == 0:
                print(f"{time.monotonic() - began:6.0f} s  {ends.total} requests, {len(ends.bad)} bad", flush=True)
        await asyncio.gather(*asking)
    print(f"{ends.total} requests: {dict(sum_by_end(ends))}")
    for line in ends.bad:
        print(f"BAD: {line}")
    return samples


def sum_by_end(ends: Ends) -> dict[str, int]:
    """Return how many requests had each end."""
    sums: dict[str, int] = defaultdict(int)
    for (_, end), number in ends.counts.items():
        sums[end] += number
    return sums


def _memory(served: Served) -> dict[str, list[float]]:
    found: dict[str, list[float]] = defaultdict(list)
    for pid in {served.pid, *descendants(served.pid)}:
        try:
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        private = sum(int(line.split()[1]) for line in lines if line.startswith("Private_"))
        found["aici" if pid == served.pid else command(pid)].append(private / 1024)
    return found


def slope(
    at_s: "np.ndarray[tuple[int], np.dtype[np.float64]]", values: "np.ndarray[tuple[int], np.dtype[np.float64]]"
) -> tuple[float, float]:
    """Return the slope per hour of a line through the means of blocks, and its standard error."""
    hours = np.array([block.mean() for block in np.array_split(at_s, _NUM_BLOCKS)]) / 3600
    means = np.array([block.mean() for block in np.array_split(values, _NUM_BLOCKS)])
    centred = hours - hours.mean()
    rate = float(centred @ means / (centred @ centred))
    rest = means - means.mean() - rate * centred
    return rate, float(np.sqrt(rest @ rest / (len(means) - 2) / (centred @ centred)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--every", type=float, default=5, help="seconds between two samples")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="aici-soak-") as name:
        folder = Path(name)
        model = write_chat_model(folder / "model")
        with Served(model, folder, "--max-num-seqs", "8", "--threads", "1") as served:
            samples = asyncio.run(_soak(served, minutes=args.minutes, num_clients=args.clients, every_s=args.every))
    print(f"{'process':18}{'number':>8}{'first MiB':>11}{'last MiB':>10}{'MiB/hour':>10}{'error':>8}")
    for process, found in sorted(samples.items()):
        kept = found[int(_WARM_UP * len(found)) :]
        if len(kept) < 2 * _NUM_BLOCKS:
            continue
        at_s, mib = np.array([each.at_s for each in kept]), np.array([each.private_mib for each in kept])
        rate, error = slope(at_s, mib)
        number = float(np.mean([each.number for each in kept]))
        print(f"{process:18}{number:>8.1f}{mib[0]:>11.1f}{mib[-1]:>10.1f}{rate:>10.2f}{error:>8.2f}")
    sys.exit(0)


if __name__ == "__main__":
    main()
