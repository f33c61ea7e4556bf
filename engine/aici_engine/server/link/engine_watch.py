"""Notices that an engine process hangs: the engine has work, and the heartbeat stands still."""

import asyncio
import contextlib
import logging
import mmap
import os
import signal
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from aici_engine.heartbeat import Beat

HANG_S: Final = 4.0
_LOOK_S: Final = 0.5
_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
_BUSY: Final = frozenset("RDt")
"""States of threads that run, wait for a disk (to read memory back, for example), or are stopped by a debugger."""
_STOPPED: Final = "T"

_log = logging.getLogger(__name__)


class Activity(NamedTuple):
    """What the processes of an engine do. `is_stopped`: the engine got SIGSTOP. `is_busy`: a thread runs, waits for a
    disk or is debugged. `cpu_s`: their processor time so far."""

    is_stopped: bool
    is_busy: bool
    cpu_s: float


class _Work(Protocol):
    """The client of the engine: `busy` is set while streams or calls are open."""

    busy: asyncio.Event


class EngineWatch:
    """Looks at an engine twice a second while there is work, and not at all while there is none.

    The time without progress counts in full while the engine's processes sleep or are stopped. While they run, only
    their processor time counts: on a busy machine an engine may be slow for long. A forward pass may take the time
    that the engine allows itself (see `Heartbeat`), and longer than HANG_S if it computes.

    An engine may wait for its runtime, and the runtime may be stopped. So the watch first kills the stopped processes
    below the engine, and the engine has the whole time again. A stopped process of the runtime may also keep requests
    waiting while the engine goes on with others: a process that was stopped HANG_S ago and is stopped now is killed.

    `nudge` asks the engine for a turn of its loop. `hung` is called once, and the watch ends. `stopped` returns the
    stopped processes below a process.
    """

    def __init__(
        self,
        pid: int,
        page: mmap.mmap,
        work: _Work,
        *,
        nudge: Callable[[], None],
        hung: Callable[[], None],
        activity: "Callable[[int], Activity] | None" = None,
        stopped: "Callable[[int], frozenset[int]] | None" = None,
        kill: "Callable[[int], None] | None" = None,
    ) -> None:
        self._pid = pid
        self._page = page
        self._work = work
        self._nudge = nudge
        self._hung = hung
        self._activity = activity or family_activity
        self._stopped = stopped or stopped_below
        self._kill = kill or _kill_stopped
        self._were_stopped: frozenset[int] = frozenset()
        self._looked_below = 0.0
        self._looking_below: asyncio.Task[None] | None = None
        self.silent_s = 0.0

    async def run(self) -> None:
        """Watch until the engine hangs."""
        while True:
            self.silent_s = 0.0
            await self._work.busy.wait()
            if await self._stands_still():
                self._hung()
                return

    async def run_start(self) -> None:
        """Watch an engine that is loading, which may take any time, unless it is stopped."""
        while self.silent_s < HANG_S:
            await asyncio.sleep(_LOOK_S)
            self.silent_s = self.silent_s + _LOOK_S if self._activity(self._pid).is_stopped else 0.0
        self._hung()

    async def _stands_still(self) -> bool:
        """Return whether the engine hangs; False when there is no work any more."""
        loop = asyncio.get_running_loop()
        last, looked, cpu_s = Beat.read(self._page).number, loop.time(), -1.0
        idle_s = busy_s = 0.0
        has_ended_some = False
        while self._work.busy.is_set():
            await asyncio.sleep(_LOOK_S)
            if not self._work.busy.is_set():
                break  # short calls are over by now: nothing to nudge, and no processes to look at
            if loop.time() - self._looked_below >= HANG_S:
                self._looked_below = loop.time()
                # Beside the looks, which must not be late: `/health` waits for them.
                self._looking_below = loop.create_task(self._end_long_stopped())
            # This process may have been stopped: the time of the stop does not count.
            passed_s, looked = min(loop.time() - looked, 2 * _LOOK_S), loop.time()
            beat = Beat.read(self._page)
            if beat.number != last:
                last, cpu_s, idle_s, busy_s = beat.number, -1.0, 0.0, 0.0
                self.silent_s, has_ended_some = 0.0, False
                continue
            self._nudge()
            now = self._activity(self._pid)
            used_s = passed_s if cpu_s < 0 else min(passed_s, now.cpu_s - cpu_s)
            cpu_s = now.cpu_s
            if now.is_stopped:
                idle_s += passed_s
            elif now.is_busy:
                busy_s += used_s
            elif not beat.waits:
                idle_s += passed_s
            self.silent_s = idle_s if busy_s < beat.allowed_s else idle_s + busy_s
            if self.silent_s < HANG_S:
                continue
            if now.is_stopped or has_ended_some or not (stopped := self._stopped(self._pid)):
                return True
            for pid in stopped:
                self._kill(pid)
            idle_s, busy_s, has_ended_some = 0.0, 0.0, True
        return False

    async def _end_long_stopped(self) -> None:
        """Kill the processes below the engine that were stopped at the last call, too."""
        stopped = await asyncio.to_thread(self._stopped, self._pid)
        for pid in stopped & self._were_stopped:
            self._kill(pid)
        self._were_stopped = stopped


def family_activity(pid: int) -> Activity:
    """Return what a process and its descendants do."""
    family = [pid, *soon_below(pid)]
    states = [state for each in family for state in _thread_states(each)]
    is_stopped = next(iter(_thread_states(pid)), "") == _STOPPED
    return Activity(is_stopped, not _BUSY.isdisjoint(states), sum(map(_cpu_s, family)))


def kill_family(pid: int) -> None:
    """Kill a process and its descendants, stopped ones too."""
    for each in (pid, *below(pid)):
        with contextlib.suppress(ProcessLookupError):
            os.kill(each, signal.SIGKILL)


def stopped_below(pid: int) -> frozenset[int]:
    """Return the stopped descendants of a process."""
    return frozenset(each for each in soon_below(pid) if next(iter(_thread_states(each)), "") == _STOPPED)


def _kill_stopped(pid: int) -> None:
    _log.error("the process %d of the controller runtime is stopped, and is ended", pid)
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def below(pid: int) -> list[int]:
    """Return the descendants of a process, from the states of all processes of the machine."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError):
                children.setdefault(int(_fields(Path("/proc", name, "stat"))[1]), []).append(int(name))
    found = list(children.get(pid, ()))
    for each in found:
        found += children.get(each, ())
    return found


def soon_below(pid: int) -> list[int]:
    """Return the descendants of a process, from the kernel's lists of children: a cheap look on a machine with many
    processes. The list may lack a process while a child of the same parent ends. Where the kernel has no such lists,
    return what `below` returns."""
    found = [pid]
    for each in found:
        for thread in _listed(f"/proc/{each}/task"):
            try:
                with open(f"/proc/{each}/task/{thread}/children", "rb") as children:
                    found += map(int, children.read().split())
            except FileNotFoundError:
                if os.path.exists(f"/proc/{each}/task/{thread}/stat"):
                    return below(pid)
            except OSError:  # the thread has ended
                continue
    return found[1:]


def _listed(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:  # the process has ended
        return []


def _thread_states(pid: int) -> Iterable[str]:
    """Yield the states of the threads, the main thread's first."""
    for path in sorted(Path(f"/proc/{pid}/task").glob("*/stat"), key=lambda path: path.parent.name != str(pid)):
        with contextlib.suppress(OSError):
            yield _fields(path)[0]


def _cpu_s(pid: int) -> float:
    try:
        fields = _fields(Path(f"/proc/{pid}/stat"))
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S


def _fields(stat: Path) -> list[str]:
    """Return the fields after the name, which may hold spaces: the state, the parent, ..."""
    return stat.read_text().rpartition(")")[2].split()
