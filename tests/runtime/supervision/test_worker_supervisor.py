"""The ownership of worker slots when processes die in an unfortunate order."""

import gc
import os
import resource
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from aici_runtime.channels.envelope import RequestError
from aici_runtime.memory.worker_slots import CANCEL_SIGNAL, WorkerSlot, WorkerSlotTable, owner_id
from aici_runtime.supervision import worker_priority
from aici_runtime.supervision.worker_supervisor import WorkerSupervisor

OWNER = owner_id("somebody")


class World:
    """A supervisor driven by the test, and processes that announce themselves."""

    def __init__(self) -> None:
        self.table = WorkerSlotTable()
        self.supervisor = WorkerSupervisor(self.table, unbound_s=60.0)
        self._children: list[int] = []

    def take(self, *, branch: bool = False) -> WorkerSlot:
        return self.table.take(self.table.fork_half if branch else self.table.guest_half, OWNER)

    def late_birth(self, slot: WorkerSlot, after_s: float) -> int:
        """Start a process that announces itself after a while and sleeps."""
        pid = os.fork()
        if pid == 0:
            time.sleep(after_s)
            with self.supervisor.reports.born(slot, 0):
                signal.pause()
        self._children.append(pid)
        return pid

    def birth(self, slot: WorkerSlot, generation: int = 0) -> int:
        """Start a process that announces itself and sleeps."""
        read_end, write_end = os.pipe()
        pid = os.fork()
        if pid == 0:
            self.supervisor.reports.born(slot, generation)
            os.close(write_end)
            signal.pause()
        os.close(write_end)
        assert os.read(read_end, 1) == b""
        os.close(read_end)
        self._children.append(pid)
        return pid

    def pool(self, slot: WorkerSlot) -> Callable[[str, WorkerSlot], None]:
        """Start a process that announces itself as the pool of `slot`. Return a function that lets the process report
        that a guest has joined, in the pool of the first slot, or left. All slots have to be taken before."""
        ours, theirs = socket.socketpair()
        pid = os.fork()
        if pid == 0:
            signal.signal(CANCEL_SIGNAL, signal.SIG_IGN)
            self.supervisor.reports.born(slot, 0)
            theirs.send(b"1")
            while order := theirs.recv(64).split():
                guest = self.table.at(int(order[1]))
                if order[0] == b"joined":
                    self.supervisor.reports.joined(guest, self.table.at(self.table.guest_half[0]), 0)
                else:
                    self.supervisor.reports.left(guest)
                theirs.send(b"1")
            os._exit(0)
        theirs.close()
        self._children.append(pid)
        ours.recv(1)
        self.supervisor.reports.pooled(slot)

        def says(what: str, guest: WorkerSlot) -> None:
            ours.send(f"{what} {guest.index}".encode())
            ours.recv(1)

        return says

    def kill(self, pid: int) -> None:
        self._children.remove(pid)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)

    def has_ended(self, pid: int) -> bool:
        if pid in self._children and os.waitpid(pid, os.WNOHANG)[0] == pid:
            self._children.remove(pid)
        return pid not in self._children

    def until(self, what: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 10
        while not what():
            assert time.monotonic() < deadline
            self.supervisor.reports.discard("nobody")  # so `run_once` never waits
            self.supervisor.run_once()

    def close(self) -> None:
        for pid in list(self._children):
            self.kill(pid)
        self.supervisor.close_descriptors()


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    world.close()


def test_a_slot_is_free_when_its_worker_is_gone(world: World) -> None:
    slot = world.take()
    pid = world.birth(slot)
    world.supervisor.reports.ready("a", slot)
    (worker,) = world.supervisor.bind(["a"])
    world.supervisor.release(worker)
    assert not slot.is_free()
    world.until(lambda: slot.is_free() and world.has_ended(pid))


def test_a_fork_that_has_not_announced_itself_yet_can_be_forked(world: World) -> None:
    fork, fork_of_fork = world.take(branch=True), world.take(branch=True)
    worker = world.supervisor.adopt_fork(fork, world.late_birth(fork, after_s=0.05))
    assert worker.control is None
    assert world.supervisor.hand_over(worker, fork_of_fork)


def test_a_fork_that_died_before_its_announcement_cannot_be_forked(world: World) -> None:
    fork, fork_of_fork = world.take(branch=True), world.take(branch=True)
    pid = world.late_birth(fork, after_s=60.0)
    worker = world.supervisor.adopt_fork(fork, pid)
    world.kill(pid)
    world.until(lambda: worker.dead)
    assert not world.supervisor.hand_over(worker, fork_of_fork)


def test_a_guest_of_a_pool_is_gone_when_the_pool_says_so(world: World) -> None:
    pool_slot, slot = world.take(), world.take()
    says = world.pool(pool_slot)
    says("joined", slot)
    world.supervisor.reports.ready("a", slot)
    (worker,) = world.supervisor.bind(["a"])
    assert worker.pool is not None
    world.supervisor.release(worker)
    assert slot.is_leaving()
    assert not slot.is_free()
    says("left", slot)
    world.until(slot.is_free)


def test_a_guest_that_left_before_it_was_given_up(world: World) -> None:
    pool_slot, slot = world.take(), world.take()
    says = world.pool(pool_slot)
    says("joined", slot)
    says("left", slot)
    world.supervisor.reports.failed(slot)
    world.until(slot.is_free)


def test_a_stranger_puts_no_guest_into_a_pool_and_takes_none_out(world: World) -> None:
    pool_slot, slot, other_slot, stranger_slot = (world.take() for _ in range(4))
    says, lies = world.pool(pool_slot), world.pool(stranger_slot)
    says("joined", slot)
    lies("joined", other_slot)
    lies("left", slot)
    world.supervisor.reports.ready("a", slot)
    (worker,) = world.supervisor.bind(["a"])
    assert not worker.dead
    world.supervisor.reports.failed(other_slot)
    world.until(other_slot.is_free)


@pytest.mark.parametrize("dies", [False, True])
def test_the_supervisor_wakes_who_waits_for_a_fork(world: World, dies: bool) -> None:
    """The supervisor's thread reads the announcement, or hears of the death, while the stepper waits."""
    fork, fork_of_fork = world.take(branch=True), world.take(branch=True)
    pid = world.late_birth(fork, after_s=60.0 if dies else 0.3)
    worker = world.supervisor.adopt_fork(fork, pid)
    handed_over: list[bool] = []
    switches = resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw
    stepper = threading.Thread(target=lambda: handed_over.append(world.supervisor.hand_over(worker, fork_of_fork)))
    stepper.start()
    time.sleep(0.3)
    if dies:
        world.kill(pid)
    while worker.control is None and not worker.dead:
        world.supervisor.run_once()
    stepper.join(1)  # a wait without news takes longer
    assert handed_over == [not dies]
    assert resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw - switches < 100, "and sleeps meanwhile"


def test_the_end_of_a_worker_takes_no_processor_from_others(world: World) -> None:
    slot = world.take()
    pid = world.birth(slot)
    world.supervisor.reports.ready("a", slot)
    (worker,) = world.supervisor.bind(["a"])
    world.supervisor.release(worker)
    assert os.getpriority(os.PRIO_PROCESS, pid) == 19


def test_the_time_of_a_worker_that_is_gone(world: World) -> None:
    slot = world.take()
    pid = world.birth(slot)
    world.supervisor.reports.ready("a", slot)
    (worker,) = world.supervisor.bind(["a"])
    world.kill(pid)
    assert worker.cpu_s() is None, "and not the time of this process"


@pytest.mark.skipif(not worker_priority.can_restore(), reason="needs the right to raise priorities")
def test_a_slow_start_takes_little_from_others(world: World) -> None:
    slot = world.take()
    pid = world.birth(slot)
    usual = os.getpriority(os.PRIO_PROCESS, pid)
    world.until(lambda: os.getpriority(os.PRIO_PROCESS, pid) > usual)
    world.supervisor.reports.ready("a", slot)
    world.until(lambda: os.getpriority(os.PRIO_PROCESS, pid) == usual)


@pytest.mark.parametrize("is_born", [True, False])
def test_a_guest_that_did_not_come_up(world: World, is_born: bool) -> None:
    slot = world.take()
    pid = world.birth(slot) if is_born else 0
    world.supervisor.reports.failed(slot)
    world.until(lambda: slot.is_free() and (not is_born or world.has_ended(pid)))


def test_what_a_side_process_had_in_its_hands(world: World) -> None:
    """A slot without a worker is free at once. Among the workers, the ready ones stay."""
    unborn, starting, ready, bound = (world.take() for _ in range(4))
    pids = {slot.index: world.birth(slot) for slot in (starting, ready, bound)}
    for slot, req_id in ((ready, "ready"), (bound, "bound")):
        world.supervisor.reports.ready(req_id, slot)
    world.supervisor.bind(["bound"])
    world.supervisor.reports.begin(1, "rid 1", None)
    world.supervisor.reports.begin(2, None, "ready")
    world.supervisor.reports.begin(3, "rid 3", "unheard of")
    world.supervisor.reports.end(1)
    generation, owed = world.supervisor.side_process_died()
    assert (generation, owed) == (1, [None, "rid 3"])
    assert unborn.is_free()
    world.until(lambda: starting.is_free() and world.has_ended(pids[starting.index]))
    world.until(lambda: ready.is_free() and world.has_ended(pids[ready.index]))  # unknown to the engine
    assert not bound.is_free()
    assert not world.has_ended(pids[bound.index])
    with pytest.raises(RequestError, match="invalid req_id ready"):
        world.supervisor.bind(["ready"])


def test_who_is_born_too_late_harms_nobody(world: World) -> None:
    """A late birth for a dead side process: the slot has a different owner by now."""
    slot = world.take()
    world.supervisor.side_process_died()
    again = world.take()
    assert again.index == slot.index
    own = world.birth(again, generation=1)
    late = world.birth(slot, generation=0)
    world.until(lambda: world.has_ended(late))
    world.supervisor.reports.ready("own", again)
    (worker,) = world.supervisor.bind(["own"])
    assert not worker.dead
    assert not world.has_ended(own)


def test_two_births_in_one_slot(world: World) -> None:
    """The first worker was a template's fork and died. The second took the slot before the supervisor knew."""
    slot = world.take()
    first = world.birth(slot)
    second = world.birth(slot)
    world.kill(first)
    world.supervisor.reports.ready("second", slot)
    (worker,) = world.supervisor.bind(["second"])
    slot.send_request(b"{}")
    for _ in range(10):
        world.supervisor.reports.discard("nobody")
        world.supervisor.run_once()
    assert slot.wait_response(time.monotonic()) is None  # alive
    world.supervisor.release(worker)
    world.until(lambda: slot.is_free() and world.has_ended(second))


@pytest.mark.parametrize("known_first", [True, False])
def test_branches_announce_themselves(world: World, known_first: bool) -> None:
    slot = world.take(branch=True)
    pid = world.birth(slot)
    if known_first:
        world.until(lambda: True)
    worker = world.supervisor.adopt_fork(slot, pid)
    assert worker is world.supervisor.adopt_fork(slot, pid)
    world.kill(pid)
    world.until(lambda: worker.dead)
    assert not slot.is_free()
    world.supervisor.release(worker)
    assert slot.is_free()


def test_a_branch_that_announces_itself_while_the_stepper_learns_of_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    slot, branch_of_branch = world.take(branch=True), world.take(branch=True)
    pid = world.late_birth(slot, after_s=0.05)
    supervising = threading.Thread(target=world.supervisor.run_once)
    open_pidfd = os.pidfd_open

    def open_slowly(pid: int) -> int:
        supervising.start()
        supervising.join(0.3)  # the thread reads the announcement now, or waits for the stepper's end
        return open_pidfd(pid)

    monkeypatch.setattr(os, "pidfd_open", open_slowly)
    worker = world.supervisor.adopt_fork(slot, pid)
    supervising.join()
    assert worker.control is not None
    assert world.supervisor.hand_over(worker, branch_of_branch)


@contextmanager
def no_descriptors() -> Iterator[None]:
    """Forbid new descriptors. Garbage of earlier tests must not close a descriptor meanwhile."""
    gc.collect()
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest = os.dup(0)
    os.close(lowest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


@pytest.mark.parametrize("has_answered", [True, False])
def test_a_guest_that_no_descriptor_is_left_for(world: World, has_answered: bool) -> None:
    """The guest is ended. Neither the guest nor the side process can know whether the guest was up."""
    slot = world.take()
    pid = world.birth(slot)
    if has_answered:
        world.supervisor.reports.ready("a", slot)
        with no_descriptors():
            (worker,) = world.supervisor.bind(["a"])
        worker.send_request(b"{}")
        assert worker.wait_response(time.monotonic() + 10) == b""
        world.supervisor.release(worker)
    else:
        world.supervisor.reports.failed(slot)
        with no_descriptors():
            world.supervisor.bind([])
    world.until(lambda: slot.is_free() and world.has_ended(pid))


@pytest.mark.parametrize("announces", [True, False])
def test_a_branch_that_no_descriptor_is_left_for(world: World, announces: bool) -> None:
    slot = world.take(branch=True)
    pid = world.birth(slot if announces else world.take(branch=True))
    if not announces:
        world.until(lambda: True)
    with no_descriptors():
        branch = world.supervisor.adopt_fork(slot, pid)
    assert slot.wait_response(time.monotonic() + 10) == b""
    world.supervisor.release(branch)
    world.until(lambda: slot.is_free() and world.has_ended(pid))


def test_a_time_that_another_thread_has_heard_of() -> None:
    """The supervisor's thread, which has to expire the guest, must wake up even if the stepper has read all reports."""
    supervisor = WorkerSupervisor(WorkerSlotTable(), unbound_s=60.0)
    slot = WorkerSlotTable().at(0)
    cpus = os.sched_getaffinity(0)
    sleeps_on: list[bool] = []

    def take_a_turn() -> None:
        os.sched_setscheduler(threading.get_native_id(), os.SCHED_IDLE, os.sched_param(0))
        supervisor.run_once()

    os.sched_setaffinity(0, {min(cpus)})  # for either
    try:
        for _ in range(5):
            thread = threading.Thread(target=take_a_turn)
            thread.start()
            time.sleep(0.05)
            supervisor.abandon(slot)
            supervisor.bind([])
            thread.join(2)
            sleeps_on.append(thread.is_alive())
            supervisor.reports.discard("nobody")
            thread.join()
    finally:
        os.sched_setaffinity(0, cpus)
        supervisor.close_descriptors()
    assert not any(sleeps_on)


def test_a_branch_that_nobody_waits_for(world: World) -> None:
    slot = world.take(branch=True)
    world.supervisor.abandon(slot)
    pid = world.birth(slot)
    world.until(lambda: slot.is_free() and world.has_ended(pid))
