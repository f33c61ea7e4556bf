"""Thousands of requests while processes are killed, stopped and starved: `python -m tests.chaos`.

Clients of all protocols talk to a server with a tiny model. Every request must end exactly once, none may hang, and
what the server promised to keep must be there after a kill of the API process. Afterwards nothing may be left: running
sequences, cache pages, processes, zombies, shared objects, descriptors.
"""

import argparse
import asyncio
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import httpx2 as httpx

from aici_controllers.catalog import guest_path
from tests.chaos.clients import HUNG_S, End, Ends, Target, client
from tests.chaos.faults import Faults
from tests.chaos.served import Served, write_chat_model
from tests.support.processes import command, descendants, shared_objects

_SETTLE_S = 90.0
_SPARE_DESCRIPTORS = 16


async def _chaos(args: argparse.Namespace, served: Served) -> bool:
    ends, rng = Ends(), random.Random(args.seed)
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=args.clients)
    began, descriptors = time.monotonic(), _num_descriptors(served.pid)
    async with httpx.AsyncClient(base_url=served.url, timeout=2 * HUNG_S, limits=limits) as http:
        target = Target(http, served.url, guest_path("regex").read_bytes(), ends)
        faults = Faults(served, http, ends, random.Random(args.seed + 1))
        causing = asyncio.create_task(faults.run(args.pause))
        asking = [
            asyncio.create_task(client(target, random.Random(rng.random()), _counter(args.requests, args.clients)))
            for _ in range(args.clients)
        ]
        telling = asyncio.create_task(_tell(ends, began))
        # A bug of the driver ends the run at once.
        everything = asyncio.ensure_future(_all(asking))
        await asyncio.wait([causing, everything], return_when=asyncio.FIRST_COMPLETED)
        for task in (causing, telling, everything):
            task.cancel()
        await asyncio.gather(causing, telling, return_exceptions=True)
        await everything
        left = await _left(served, http, ends, descriptors)
    _print(ends, faults, time.monotonic() - began)
    bad = [*ends.bad, *faults.never, *left]
    print("\n".join(f"BAD: {line}" for line in bad) if bad else "none hung, none leaked, each with exactly one end")
    return not bad


async def _all(tasks: list[asyncio.Task[None]]) -> None:
    await asyncio.gather(*tasks)


def _counter(num_requests: int, num_clients: int) -> Callable[[], bool]:
    left = iter(range(num_requests // num_clients))
    return lambda: next(left, None) is not None


async def _tell(ends: Ends, began: float) -> None:
    while True:
        await asyncio.sleep(30)
        print(f"{time.monotonic() - began:6.0f} s  {ends.total} requests, {len(ends.bad)} bad", flush=True)


async def _left(served: Served, http: httpx.AsyncClient, ends: Ends, descriptors: int) -> list[str]:
    """Return what should not be there once all requests have ended, and what is not there though it should."""
    deadline = time.monotonic() + _SETTLE_S
    while (wrong := await _wrong_now(served, http, ends, descriptors)) and time.monotonic() < deadline:
        await asyncio.sleep(0.5)
    return wrong


async def _wrong_now(served: Served, http: httpx.AsyncClient, ends: Ends, descriptors: int) -> list[str]:
    try:
        return await _wrong(served, http, ends, descriptors)
    except httpx.HTTPError as error:  # the last fault may have killed the API process, and a new one is starting
        return [f"no answer: {error!r}"]


async def _wrong(served: Served, http: httpx.AsyncClient, ends: Ends, descriptors: int) -> list[str]:
    stats = (await http.get("/stats")).json()
    busy = ("active_requests", "waiting_requests", "admitted_sequences", "cache_usage")
    wrong = [f"{name} is {stats.get(name)}" for name in busy if stats.get(name) != 0]
    mine = {served.pid, *descendants(served.pid)}
    wrong += [f"zombie {pid} {command(pid)}" for pid in mine if _is_zombie(pid)]
    wrong += [f"{command(pid)} {pid} outlived its server" for pid in served.strays()]
    if len(engines := served.find("aici-engine")) != 1:
        wrong.append(f"{len(engines)} engines")
    names = {name for name in os.listdir("/dev/shm") if "aici-" in name}
    wrong += [f"shared object {name}" for pid in engines for name in shared_objects(pid) if name in names]
    if (now := _num_descriptors(served.pid)) > descriptors + _SPARE_DESCRIPTORS:
        wrong.append(f"{now} descriptors, {descriptors} at the start")
    for path in dict.fromkeys(ends.kept):
        answer = await http.get(path)
        if answer.status_code != 200:
            wrong.append(f"{path} is {answer.status_code}")
        elif "/batches/" in path and answer.json()["status"] not in ("completed", "failed"):
            wrong.append(f"{path} is {answer.json()['status']}")
    return wrong


def _is_zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return False


def _num_descriptors(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def _print(ends: Ends, faults: Faults, seconds: float) -> None:
    print(f"\n{ends.total} requests in {seconds:.0f} s, p50 {statistics.median(ends.seconds):.2f} s,", end=" ")
    print(f"p99 {statistics.quantiles(ends.seconds, n=100)[98]:.2f} s, longest {max(ends.seconds):.2f} s")
    protocols = sorted({protocol for protocol, _ in ends.counts})
    print(f"{'':14}" + "".join(f"{end:>9}" for end in End))
    for protocol in protocols:
        print(f"{protocol:14}" + "".join(f"{ends.counts[protocol, end]:>9}" for end in End))
    print(
        f"\n{'fault':22}{'times':>6}{'median s':>10}{'longest s':>10}   until a plain and a controlled request end well"
    )
    for fault, outages in sorted(faults.outages.items()):
        print(f"{fault:22}{len(outages):>6}{statistics.median(outages):>10.2f}{max(outages):>10.2f}")
    print("\nmost frequent reasons")
    for why, number in ends.reasons.most_common(12):
        print(f"{number:>6} {why}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--clients", type=int, default=24)
    parser.add_argument("--pause", type=float, default=2.0, help="mean seconds between two faults")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    args = parser.parse_args()
    print(f"seed {args.seed}")
    with tempfile.TemporaryDirectory(prefix="aici-chaos-") as name:
        folder = Path(name)
        model = write_chat_model(folder / "model")
        with Served(model, folder, "--max-num-seqs", "8", "--threads", "1") as served:
            good = asyncio.run(_chaos(args, served))
            if not good:
                kept = Path(tempfile.gettempdir()) / "chaos-server.log"
                kept.write_bytes(served.log.read_bytes())
                print(f"the server's log: {kept}")
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
