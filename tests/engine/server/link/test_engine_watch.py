"""When an engine is taken for hanging, and when it is only slow. The watch's clock is that of asyncio."""

import asyncio
import mmap
import os
import signal
import subprocess
import sys
from collections.abc import Callable

import pytest

from aici_engine.heartbeat import PAGE_BYTES, Heartbeat
from aici_engine.server.link import engine_watch
from aici_engine.server.link.engine_watch import (
    Activity,
    EngineWatch,
    below,
    family_activity,
    kill_family,
    soon_below,
)
from tests.support.processes import alive, command, descendants, wait_until

ASLEEP, STOPPED = Activity(False, False, 0.0), Activity(True, False, 0.0)


class Work:
    def __init__(self, is_busy: bool = True) -> None:
        self.busy = asyncio.Event()
        if is_busy:
            self.busy.set()


class Case:
    """A watch of an engine that does what `activity` says, 20 times as fast as a real one."""

    def __init__(
        self,
        activity: Callable[[], Activity],
        *,
        is_busy: bool = True,
        stopped: Callable[[], frozenset[int]] = frozenset,
    ) -> None:
        self.killed: list[int] = []
        self.page = mmap.mmap(-1, PAGE_BYTES)
        self.heartbeat = Heartbeat(self.page)
        self.work = Work(is_busy)
        self.nudges = 0
        self.has_hung = False
        self.watch = EngineWatch(
            1,
            self.page,
            self.work,
            nudge=self._nudge,
            hung=self._hung,
            activity=lambda _: activity(),
            stopped=lambda _: stopped(),
            kill=self.killed.append,
        )

    def _nudge(self) -> None:
        self.nudges += 1

    def _hung(self) -> None:
        self.has_hung = True

    async def hangs_within(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await self.watch.run()
        except TimeoutError:
            return False
        assert self.has_hung
        return True


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_watch, "HANG_S", 0.2)
    monkeypatch.setattr(engine_watch, "_LOOK_S", 0.025)


def hangs(activity: Callable[[], Activity], within_s: float, prepare: Callable[[Case], None] = lambda _: None) -> bool:
    async def main() -> bool:
        case = Case(activity)
        prepare(case)
        return await case.hangs_within(within_s)

    return asyncio.run(main())


def burning(share: float) -> Callable[[], Activity]:
    """Return the activity of an engine that gets a share of a processor."""
    began: list[float] = []

    def activity() -> Activity:
        now = asyncio.get_running_loop().time()
        began.append(now)
        return Activity(False, True, share * (now - began[0]))

    return activity


def test_an_engine_that_sleeps_or_is_stopped_with_work_to_do_hangs() -> None:
    assert hangs(lambda: ASLEEP, 60)
    assert hangs(lambda: STOPPED, 60)


def test_an_engine_that_computes_for_ever_hangs() -> None:
    assert hangs(burning(1.0), 60)


def test_an_engine_that_hardly_gets_a_processor_does_not_hang() -> None:
    assert not hangs(burning(0.02), 1.0)


def test_a_forward_pass_may_take_the_time_that_the_engine_allows_itself() -> None:
    def slow(case: Case) -> None:
        case.heartbeat.weight_bytes = 1 << 40
        case.heartbeat.compute(512)

    assert not hangs(burning(1.0), 1.0, slow)
    assert hangs(lambda: ASLEEP, 60, slow), "nobody computes the pass"


def test_an_engine_may_wait_for_other_machines() -> None:
    def divided(case: Case) -> None:
        case.heartbeat.waits = True
        case.heartbeat.compute(512)

    assert not hangs(lambda: ASLEEP, 1.0, divided)
    assert hangs(lambda: STOPPED, 60, divided)


@pytest.mark.parametrize("does_help", [True, False])
def test_stopped_processes_below_the_engine_are_killed_first_and_once(does_help: bool) -> None:
    async def main() -> None:
        case = Case(lambda: ASLEEP, stopped=lambda: frozenset() if case.killed else frozenset({7}))

        async def step() -> None:
            while True:
                if does_help and case.killed:
                    case.heartbeat.beat()
                await asyncio.sleep(0.02)

        steps = asyncio.create_task(step())
        assert await case.hangs_within(1.5) is not does_help
        steps.cancel()
        assert case.killed == [7]

    asyncio.run(main())


@pytest.mark.parametrize("lasts", [True, False])
def test_a_process_that_stays_stopped_is_killed_while_the_engine_goes_on(lasts: bool) -> None:
    async def main() -> None:
        looks: list[int] = []

        def stopped() -> frozenset[int]:
            looks.append(7 if lasts else 7 + len(looks))
            return frozenset({looks[-1]})

        case = Case(lambda: ASLEEP, stopped=stopped)

        async def step() -> None:
            while True:
                case.heartbeat.beat()
                await asyncio.sleep(0.02)

        steps = asyncio.create_task(step())
        assert not await case.hangs_within(1.5)
        steps.cancel()
        assert set(case.killed) == ({7} if lasts else set())

    asyncio.run(main())


def test_a_stopped_engine_is_not_given_more_time() -> None:
    async def main() -> None:
        case = Case(lambda: STOPPED, stopped=lambda: frozenset({len(case.killed)}))
        assert await case.hangs_within(60)
        assert case.killed == []

    asyncio.run(main())


def test_progress_begins_the_time_anew() -> None:
    async def main() -> None:
        case = Case(lambda: ASLEEP)

        async def step() -> None:
            while True:
                await asyncio.sleep(0.02)
                case.heartbeat.beat()

        steps = asyncio.create_task(step())
        hung = await case.hangs_within(1.0)
        steps.cancel()
        assert not hung

    asyncio.run(main())


def test_without_work_nobody_looks() -> None:
    def forbidden() -> Activity:
        raise AssertionError("the watch looked")

    async def main() -> None:
        case = Case(forbidden, is_busy=False)
        assert not await case.hangs_within(0.5)
        assert case.nudges == 0

    asyncio.run(main())


def test_a_start_may_take_any_time_unless_the_process_is_stopped() -> None:
    async def main() -> None:
        case = Case(lambda: ASLEEP)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await case.watch.run_start()
        stopped = Case(lambda: STOPPED)
        async with asyncio.timeout(60):
            await stopped.watch.run_start()
        assert stopped.has_hung

    asyncio.run(main())


def test_activities_and_ends_of_real_processes() -> None:
    """The shell's child computes; both are stopped and killed."""
    burn = f"exec {sys.executable} -c 'while True: pass'"
    with subprocess.Popen(["sh", "-c", f"{burn} & wait"], process_group=0) as shell:
        try:
            assert wait_until(lambda: bool(descendants(shell.pid)), 30)
            assert wait_until(lambda: family_activity(shell.pid).cpu_s > 0.05, 30)
            assert wait_until(lambda: family_activity(shell.pid).is_busy, 30)
            assert not family_activity(shell.pid).is_stopped
            family = {shell.pid, *descendants(shell.pid)}
            for pid in family:
                os.kill(pid, signal.SIGSTOP)
            assert wait_until(lambda: family_activity(shell.pid).is_stopped, 30)
        finally:
            kill_family(shell.pid)
    assert wait_until(lambda: not alive(family), 30), [command(pid) for pid in family]
    assert family_activity(shell.pid) == Activity(False, False, 0.0)


def test_short_calls_to_an_idle_engine_cost_no_look_at_its_processes() -> None:
    """A page that shows the server's state asks an idle engine twice a second."""
    looks: list[int] = []

    def activity() -> Activity:
        looks.append(1)
        return ASLEEP

    async def main() -> None:
        case = Case(activity, is_busy=False)
        watching = asyncio.create_task(case.watch.run())
        for _ in range(5):
            case.work.busy.set()
            await asyncio.sleep(0.001)
            case.work.busy.clear()
            await asyncio.sleep(3 * engine_watch._LOOK_S)
        watching.cancel()
        assert (case.nudges, looks) == (0, [])

    asyncio.run(main())


_FAMILY = """
import subprocess, sys, threading
sleeper = [sys.executable, "-c", "import time; print(1, flush=True); time.sleep(600)"]
child = "import subprocess, sys; subprocess.run(sys.argv[1:])"
def start():
    subprocess.Popen([sys.executable, "-c", child, *sleeper]).wait()
threading.Thread(target=start).start()
subprocess.Popen(sleeper).wait()
"""


def test_the_quick_list_has_the_descendants_of_every_thread() -> None:
    family = subprocess.Popen([sys.executable, "-c", _FAMILY], stdout=subprocess.PIPE)
    try:
        assert family.stdout is not None
        for _ in range(2):
            family.stdout.readline()
        assert len(soon_below(family.pid)) == 3
        assert sorted(soon_below(family.pid)) == sorted(below(family.pid))
    finally:
        kill_family(family.pid)
        family.wait()
        assert family.stdout is not None
        family.stdout.close()
    assert soon_below(family.pid) == []
