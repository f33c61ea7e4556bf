"""One run of the chaos driver: clients, faults, and what went wrong."""

import asyncio
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass

import httpx2 as httpx

from aici_controllers.catalog import guest_path
from tests.chaos import report
from tests.chaos.clients import HUNG_S, Ends, Target, client
from tests.chaos.faults import Faults
from tests.chaos.leaks import Leaks
from tests.chaos.plan import Fault
from tests.chaos.served import Served

_TELL_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ChaosRun:
    """`num_requests`, `times`: at least; the run ends when there were so many requests, and so many of each fault."""

    num_requests: int
    num_clients: int
    faults: Sequence[Fault]
    times: int
    pause_s: float
    seed: int


def run_chaos(plan: ChaosRun, served: Served) -> list[str]:
    """Run the plan, print the tables, and return what went wrong."""
    return asyncio.run(_run(plan, served))


async def _run(plan: ChaosRun, served: Served) -> list[str]:
    ends, rng, began = Ends(), random.Random(plan.seed), time.monotonic()
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=plan.num_clients)
    async with httpx.AsyncClient(base_url=served.url, timeout=2 * HUNG_S, limits=limits) as http:
        leaks = Leaks(served, http, ends)
        target = Target(http, served.url, guest_path("regex").read_bytes(), ends)
        faults = Faults(served, http, ends, random.Random(plan.seed + 1))
        num_begun = 0

        def goes_on() -> bool:
            nonlocal num_begun
            num_begun += 1
            return num_begun <= plan.num_requests or not (faults.are_done.is_set() or causing.done())

        causing = asyncio.create_task(faults.run(plan.faults, times=plan.times, pause_s=plan.pause_s))
        telling = asyncio.create_task(_tell(ends, began))
        asking = [
            asyncio.create_task(client(target, random.Random(rng.random()), goes_on)) for _ in range(plan.num_clients)
        ]
        await asyncio.gather(*asking)
        faults.is_over = True
        telling.cancel()
        [why, _] = await asyncio.gather(causing, telling, return_exceptions=True)
        left = await leaks.find()
    print(f"\n{report.of_requests(ends, time.monotonic() - began)}\n\n{report.of_outages(faults.outages)}")
    print(f"\n{report.of_components(faults.outages)}\n\n{report.of_reasons(ends)}\n")
    bad = [*ends.bad, *faults.never, *left, *_missing(plan, faults)]
    if why is not None:
        bad.append(f"the faults ended early: {why!r}")
    print("\n".join(f"BAD: {line}" for line in bad) if bad else "none hung, none leaked, each with exactly one end")
    return bad


def _missing(plan: ChaosRun, faults: Faults) -> list[str]:
    return [
        f"{fault} happened {faults.counts[fault]} times, not {plan.times}"
        for fault in plan.faults
        if faults.counts[fault] < plan.times
    ]


async def _tell(ends: Ends, began: float) -> None:
    while True:
        await asyncio.sleep(_TELL_S)
        print(f"{time.monotonic() - began:6.0f} s  {ends.total} requests, {len(ends.bad)} bad", flush=True)
