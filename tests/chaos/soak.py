"""Hours of ordinary requests, and the memory of every process: `python -m tests.chaos.soak --minutes 60`.

Each sample is a line of JSON in `--samples`, written when it is taken: `--report FILE` prints the table of a run that
did not end. The slope of each kind of process is a least-squares line over its samples, with its standard error. The
samples of one process are not independent: the error is computed from the means of blocks. Caches fill up slowly, so
the slope of the second half stands beside the slope of the whole.
"""

import argparse
import asyncio
import itertools
import random
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Final

import httpx2 as httpx
import msgspec
import numpy as np

from aici_controllers.catalog import guest_path
from tests.chaos.clients import Ends, Target, client
from tests.chaos.served import Served, write_chat_model
from tests.support.processes import command, descendants

_NUM_BLOCKS: Final = 20
_WARM_UP: Final = 0.15
"""The share of the samples that do not count: caches and templates fill up."""
_MANY_ERRORS: Final = 3.0
"""A slope of so many standard errors is said to be one."""


class Sample(msgspec.Struct, frozen=True):
    """`process`: the short name; `aici` is the API process. `private_mib`: the memory of all processes of the name that
    they share with no other. `number`: of these processes. `num_requests`: those that have ended."""

    at_s: float
    process: str
    private_mib: float
    number: int
    num_requests: int


async def soak(served: Served, *, minutes: float, num_clients: int, every_s: float, samples: IO[bytes]) -> Ends:
    """Send requests, and write a sample of each kind of process every `every_s` seconds."""
    ends, rng = Ends(), random.Random(1)
    began = time.monotonic()
    until = began + 60 * minutes
    async with httpx.AsyncClient(base_url=served.url, timeout=300) as http:
        target = Target(http, served.url, guest_path("regex").read_bytes(), ends)
        asking = [
            asyncio.create_task(client(target, random.Random(rng.random()), lambda: time.monotonic() < until))
            for _ in range(num_clients)
        ]
        for turn in itertools.count(1):
            await asyncio.wait(asking, timeout=max(0.0, began + turn * every_s - time.monotonic()))
            if time.monotonic() >= until:
                break
            at_s = time.monotonic() - began
            for name, sizes in _memory(served).items():
                samples.write(msgspec.json.encode(Sample(at_s, name, sum(sizes), len(sizes), ends.total)) + b"\n")
            samples.flush()
            if turn % 30 == 0:
                print(f"{at_s:6.0f} s  {ends.total} requests, {len(ends.bad)} bad", flush=True)
        await asyncio.gather(*asking)
    return ends


def _memory(served: Served) -> dict[str, list[float]]:
    found: dict[str, list[float]] = defaultdict(list)
    for pid in {served.pid, *descendants(served.pid)}:
        try:
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        private = sum(int(line.split()[1]) for line in lines if line.startswith("Private_"))
        found["aici" if pid == served.pid else command(pid)].append(private / 1024)
    found.pop("", None)  # ended by now
    return found


def read(lines: Iterable[bytes]) -> dict[str, list[Sample]]:
    """Return the samples of a file by process. The last line may be cut off."""
    samples: dict[str, list[Sample]] = defaultdict(list)
    for line in lines:
        if line.endswith(b"\n"):
            sample = msgspec.json.decode(line, type=Sample)
            samples[sample.process].append(sample)
    return samples


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


def table(samples: dict[str, list[Sample]]) -> str:
    """Return the slope of each kind of process with enough samples."""
    head = f"{'process':18}{'number':>8}{'first MiB':>11}{'last MiB':>10}{'MiB/hour':>10}{'error':>8}"
    lines = [f"{head}{'2nd half':>10}{'error':>8}  slope of the 2nd half"]
    for process, found in sorted(samples.items()):
        kept = found[int(_WARM_UP * len(found)) :]
        if len(kept) < 4 * _NUM_BLOCKS:
            lines.append(f"{process:18}{len(found)} samples are too few")
            continue
        at_s, mib = np.array([each.at_s for each in kept]), np.array([each.private_mib for each in kept])
        rate, error = slope(at_s, mib)
        late_rate, late_error = slope(at_s[len(kept) // 2 :], mib[len(kept) // 2 :])
        number = float(np.mean([each.number for each in kept]))
        says = "flat" if abs(late_rate) <= _MANY_ERRORS * late_error else "grows" if late_rate > 0 else "shrinks"
        whole = f"{process:18}{number:>8.1f}{mib[0]:>11.1f}{mib[-1]:>10.1f}{rate:>10.2f}{error:>8.2f}"
        lines.append(f"{whole}{late_rate:>10.2f}{late_error:>8.2f}  {says}")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--every", type=float, default=5, help="seconds between two samples")
    parser.add_argument("--samples", type=Path, default=Path(tempfile.gettempdir()) / "soak.jsonl")
    parser.add_argument("--report", type=Path, metavar="FILE", help="print the table of these samples, run nothing")
    args = parser.parse_args()
    if args.report is not None:
        with args.report.open("rb") as lines:
            print(table(read(lines)))
        return
    with tempfile.TemporaryDirectory(prefix="aici-soak-") as name, args.samples.open("wb+") as samples:
        folder = Path(name)
        model = write_chat_model(folder / "model")
        with Served(model, folder, "--max-num-seqs", "8", "--threads", "1") as served:
            ends = asyncio.run(
                soak(served, minutes=args.minutes, num_clients=args.clients, every_s=args.every, samples=samples)
            )
        samples.seek(0)
        print(table(read(samples)))
    print(f"{ends.total} requests: {dict(Counter({end: sum_of(ends, end) for end in {e for _, e in ends.counts}}))}")
    print("\n".join(f"BAD: {line}" for line in ends.bad) or "none hung, each with exactly one end")
    print(f"the samples: {args.samples}")
    sys.exit(1 if ends.bad else 0)


def sum_of(ends: Ends, end: str) -> int:
    """Return how many requests of all protocols had an end."""
    return sum(number for (_, each), number in ends.counts.items() if each == end)


if __name__ == "__main__":
    main()
