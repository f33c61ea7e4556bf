"""What is left when all requests of a chaos run have ended, and must not be; and what must be there, and is not."""

import asyncio
import os
import time
from pathlib import Path
from typing import Final

import httpx2 as httpx

from tests.chaos.clients import Ends
from tests.chaos.served import Served
from tests.support.processes import command, descendants, shared_objects

_SETTLE_S: Final = 90.0
_SPARE_DESCRIPTORS: Final = 16


class Leaks:
    """Compares the server with its state at the start."""

    def __init__(self, served: Served, http: httpx.AsyncClient, ends: Ends) -> None:
        self._served = served
        self._http = http
        self._ends = ends
        self._descriptors = _num_descriptors(served.pid)

    async def find(self) -> list[str]:
        """Return what is wrong once the server has had time to settle."""
        deadline = time.monotonic() + _SETTLE_S
        while (wrong := await self._wrong_now()) and time.monotonic() < deadline:
            await asyncio.sleep(0.5)
        return wrong

    async def _wrong_now(self) -> list[str]:
        try:
            return await self._wrong()
        except httpx.HTTPError as error:  # the last fault may have killed the API process, and a new one is starting
            return [f"no answer: {error!r}"]

    async def _wrong(self) -> list[str]:
        served = self._served
        stats = (await self._http.get("/stats")).json()
        busy = ("active_requests", "waiting_requests", "admitted_sequences", "cache_usage")
        wrong = [f"{name} is {stats.get(name)}" for name in busy if stats.get(name) != 0]
        mine = {served.pid, *descendants(served.pid)}
        wrong += [f"zombie {pid} {command(pid)}" for pid in mine if _is_zombie(pid)]
        wrong += [f"{command(pid)} {pid} outlived its server" for pid in served.strays()]
        if len(engines := served.find("aici-engine")) != served.num_engines:
            wrong.append(f"{len(engines)} engines")
        names = {name for name in os.listdir("/dev/shm") if "aici-" in name}
        wrong += [f"shared object {name}" for pid in engines for name in shared_objects(pid) if name in names]
        if (now := _num_descriptors(served.pid)) > self._descriptors + _SPARE_DESCRIPTORS:
            wrong.append(f"{now} descriptors, {self._descriptors} at the start")
        for path in dict.fromkeys(self._ends.kept):
            answer = await self._http.get(path)
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
