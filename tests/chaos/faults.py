"""The faults of the chaos driver, and how long the server needs to answer again after each."""

import asyncio
import contextlib
import math
import os
import random
import resource
import signal
import time
from collections import defaultdict
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any, Final

import httpx2 as httpx

from tests.chaos.clients import Ends
from tests.chaos.served import Served
from tests.support.processes import alive

_PROBE_S: Final = 0.01
_GIVE_UP_S: Final = 120.0
_PLAIN: Final[dict[str, Any]] = {"controller": "none", "controller_arg": "x", "max_tokens": 1, "ignore_eos": True}
_CONTROLLED: Final[dict[str, Any]] = {"controller": "regex", "controller_arg": "[a-z]", "prompt": "x", "max_tokens": 1}

KILLED: Final = {
    "aici": 1,
    "aici-engine": 3,
    "aicirt": 2,
    "aicirt-spawner": 2,
    "aicirt-side": 2,
    "aicirt-pool": 1,
    "aicirt-template": 3,
    "aicirt-comms": 3,
    "aicirt-seq": 6,
}
"""Name of a process → how often it is killed."""
STOPPED: Final = {"aici": 2, "aici-engine": 3, "aicirt": 2, "aicirt-spawner": 2, "aicirt-side": 2, "aicirt-seq": 3}
SHORT: Final = {"disk": 2, "descriptors": 2, "memory": 2}
KINDS: Final = {"kill": 6, "stop": 4, "freeze": 1, "short": 2}
_NUMBERS: Final = {
    "disk": resource.RLIMIT_FSIZE,
    "descriptors": resource.RLIMIT_NOFILE,
    "memory": resource.RLIMIT_AS,
}


@dataclass
class Faults:
    """`outages`: by fault, the seconds from the fault (for a shortage, from its end) to the next answer."""

    served: Served
    http: httpx.AsyncClient
    ends: Ends
    rng: random.Random
    outages: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    never: list[str] = field(default_factory=list)

    async def run(self, pause_s: float) -> None:
        """Cause one fault after the other, until cancelled."""
        while True:
            await asyncio.sleep(self.rng.random() * 2 * pause_s)
            [kind] = self.rng.choices(list(KINDS), list(KINDS.values()))
            await getattr(self, f"_{kind}")()

    async def _kill(self) -> None:
        if (found := self._choose(KILLED)) is None:
            return
        name, pid = found
        began = time.monotonic()
        if name == "aici":
            self.ends.last_api_death = math.inf  # until it is up again, nobody is answered
            await asyncio.to_thread(self.served.kill_and_start)
            self.ends.last_api_death = time.monotonic()
        else:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        await self._recovered(f"kill {name}", began)

    async def _stop(self) -> None:
        """Stop a process for a moment that is too short to be taken for a hang."""
        if (found := self._choose(STOPPED)) is None:
            return
        name, pid = found
        async with _stopped(pid):
            await asyncio.sleep(0.05 + self.rng.random() * 2.5)
        await self._recovered(f"stop {name}", time.monotonic())

    async def _freeze(self) -> None:
        """Stop the engine for ever. The server must notice, and replace it."""
        if found := self._choose({"aici-engine": 1}):
            began = time.monotonic()
            os.kill(found[1], signal.SIGSTOP)
            await self._recovered("freeze aici-engine", began)
            if alive({found[1]}):
                self.never.append(f"the frozen engine {found[1]} was not killed")
                os.kill(found[1], signal.SIGKILL)

    async def _short(self) -> None:
        """Let the API process, or the engine, run out of something for a while."""
        [what] = self.rng.choices(list(SHORT), list(SHORT.values()))
        [pid] = self.served.find(self.rng.choice(["aici", "aici-engine"])) or [self.served.pid]
        number = _NUMBERS[what]
        try:
            soft, hard = resource.prlimit(pid, number)
            low = {
                "disk": 4096,
                "descriptors": len(os.listdir(f"/proc/{pid}/fd")) + 2,
                "memory": _size(pid) + (8 << 20),
            }
            resource.prlimit(pid, number, (low[what], hard))
            await asyncio.sleep(self.rng.random() * 2)
            resource.prlimit(pid, number, (soft, hard))
        except (ProcessLookupError, FileNotFoundError):
            return
        await self._recovered(f"short of {what}", time.monotonic())

    async def _recovered(self, fault: str, began: float) -> None:
        for body in (_PLAIN, _CONTROLLED):
            while not await self._answers(body):
                if time.monotonic() - began > _GIVE_UP_S:
                    self.never.append(f"{fault}: no answer within {_GIVE_UP_S:g} s")
                    return
                await asyncio.sleep(_PROBE_S)
        self.outages[fault].append(time.monotonic() - began)
        print(f"{fault}: answers after {self.outages[fault][-1]:.2f} s", flush=True)

    async def _answers(self, body: dict[str, Any]) -> bool:
        try:
            answer = await self.http.post("/v1/run", json=body)
        except httpx.HTTPError:
            return False
        return answer.status_code == 200 and '"finish_reason":"fail"' not in answer.text and "[DONE]" in answer.text

    def _choose(self, weights: dict[str, int]) -> tuple[str, int] | None:
        [name] = self.rng.choices(list(weights), list(weights.values()))
        pids = self.served.find(name)
        return (name, self.rng.choice(pids)) if pids else None


@contextlib.asynccontextmanager
async def _stopped(pid: int) -> AsyncIterator[None]:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def _size(pid: int) -> int:
    with open(f"/proc/{pid}/statm") as file:
        return int(file.read().split()[0]) * resource.getpagesize()
