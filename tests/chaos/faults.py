"""Causes the faults of the chaos driver, and measures how long the server needs to answer again after each."""

import asyncio
import contextlib
import math
import os
import random
import resource
import signal
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import httpx2 as httpx

from tests.chaos.clients import Ends
from tests.chaos.plan import Fault, rounds
from tests.chaos.served import Served
from tests.support.processes import alive

_PROBE_S: Final = 0.01
_GIVE_UP_S: Final = 120.0
_FIND_S: Final = 20.0
"""A process that lives for moments, such as a worker, is looked for so long."""
_STOP_S: Final = 2.5
_SHORT_S: Final = 2.0
_NUM_REFERENCES: Final = 5
_PLAIN: Final[dict[str, Any]] = {"controller": "none", "controller_arg": "x", "max_tokens": 1, "ignore_eos": True}
_CONTROLLED: Final[dict[str, Any]] = {"controller": "regex", "controller_arg": "[a-z]", "prompt": "x", "max_tokens": 1}
_LIMITS: Final = {
    "disk": resource.RLIMIT_FSIZE,
    "descriptors": resource.RLIMIT_NOFILE,
    "memory": resource.RLIMIT_AS,
}
NONE: Final = Fault("none", "")


@dataclass
class Faults:
    """`outages`: by fault, the seconds from the fault (after a stop and a shortage, from its end) until a plain and a
    controlled request have ended well; under `NONE`, of such requests without a fault. `are_done`: every fault of the
    plan has happened `times` times. `never`: what did not recover, and faults that could not be caused."""

    served: Served
    http: httpx.AsyncClient
    ends: Ends
    rng: random.Random
    outages: dict[Fault, list[float]] = field(default_factory=lambda: defaultdict(list))
    never: list[str] = field(default_factory=list)
    are_done: asyncio.Event = field(default_factory=asyncio.Event)
    is_over: bool = False

    async def run(self, faults: Sequence[Fault], *, times: int, pause_s: float) -> None:
        """Cause all faults `times` times, and then again until `is_over`."""
        for _ in range(_NUM_REFERENCES):
            await self._recovered(NONE, time.monotonic())
        for number, shuffled in enumerate(rounds(faults, self.rng)):
            if number == times:
                self.are_done.set()
            for fault in shuffled:
                if self.is_over:
                    return
                await asyncio.sleep(self.rng.random() * 2 * pause_s)
                if not await self._cause(fault) and not self.are_done.is_set():
                    self.never.append(f"{fault}: there was no such process for {_FIND_S:g} s")

    @property
    def counts(self) -> Counter[Fault]:
        return Counter({fault: len(outages) for fault, outages in self.outages.items()})

    async def _cause(self, fault: Fault) -> bool:
        """Return False if there was no such process."""
        until = time.monotonic() + _FIND_S
        while time.monotonic() < until:
            for pid in self.rng.sample(pids := self.served.find(fault.component), len(pids)):
                began = await self._caused(fault, pid)
                if began is not None:
                    await self._recovered(fault, began)
                    return True
            await asyncio.sleep(_PROBE_S)
        return False

    async def _caused(self, fault: Fault, pid: int) -> float | None:
        """Return from when on the server has to recover; None if the process had ended."""
        try:
            match fault.kind:
                case "kill" if fault.component == "aici":
                    return await self._kill_api()
                case "kill":
                    return _signal(pid, signal.SIGKILL)
                case "stop":
                    return await self._stop(pid)
                case "freeze":
                    return await self._freeze(pid)
                case _:
                    return await self._run_short(_LIMITS[fault.kind], fault.kind, pid)
        except (ProcessLookupError, FileNotFoundError):
            return None

    async def _kill_api(self) -> float:
        began = time.monotonic()
        self.ends.last_api_death = math.inf  # until it is up again, nobody is answered
        await asyncio.to_thread(self.served.kill_and_start)
        self.ends.last_api_death = time.monotonic()
        return began

    async def _stop(self, pid: int) -> float:
        async with _stopped(pid):
            await asyncio.sleep(_STOP_S * (0.02 + 0.98 * self.rng.random()))
        return time.monotonic()

    async def _freeze(self, pid: int) -> float:
        """Stop a process for ever: the server must notice and kill it."""
        began = _signal(pid, signal.SIGSTOP)
        self.frozen = pid
        return began

    async def _run_short(self, number: int, kind: str, pid: int) -> float:
        """Let a process run out of something for a while."""
        soft, hard = resource.prlimit(pid, number)
        low = {"disk": 4096, "descriptors": len(os.listdir(f"/proc/{pid}/fd")) + 2, "memory": _size(pid) + (8 << 20)}
        resource.prlimit(pid, number, (low[kind], hard))
        await asyncio.sleep(_SHORT_S * self.rng.random())
        with contextlib.suppress(ProcessLookupError):  # dead of it, perhaps
            resource.prlimit(pid, number, (soft, hard))
        return time.monotonic()

    async def _recovered(self, fault: Fault, began: float) -> None:
        for body in (_PLAIN, _CONTROLLED):
            while not await self._answers(body):
                if time.monotonic() - began > _GIVE_UP_S:
                    self.never.append(f"{fault}: no answer within {_GIVE_UP_S:g} s")
                    return
                await asyncio.sleep(_PROBE_S)
        self.outages[fault].append(time.monotonic() - began)
        print(f"{fault}: answers after {self.outages[fault][-1]:.2f} s", flush=True)
        if fault.kind == "freeze" and not await self._is_gone(self.frozen):
            self.never.append(f"{fault}: {self.frozen} was not killed")
            _signal(self.frozen, signal.SIGKILL)

    async def _is_gone(self, pid: int) -> bool:
        """A frozen worker is killed when its request ends, or when it is late for too long."""
        until = time.monotonic() + _FIND_S
        while alive({pid}) and time.monotonic() < until:
            await asyncio.sleep(_PROBE_S)
        return not alive({pid})

    async def _answers(self, body: dict[str, Any]) -> bool:
        try:
            answer = await self.http.post("/v1/run", json=body)
        except httpx.HTTPError:
            return False
        return answer.status_code == 200 and '"finish_reason":"fail"' not in answer.text and "[DONE]" in answer.text


def _signal(pid: int, number: signal.Signals) -> float:
    os.kill(pid, number)
    return time.monotonic()


@contextlib.asynccontextmanager
async def _stopped(pid: int) -> AsyncIterator[None]:
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def _size(pid: int) -> int:
    with open(f"/proc/{pid}/statm") as file:
        return int(file.read().split()[0]) * resource.getpagesize()
