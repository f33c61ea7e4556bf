"""Which workers exist. Learns of newborns from themselves, of their fate from the side process, of deaths from the
kernel; frees slots.

A thread sleeps on the pidfd of every worker, on the news and on whatever else it was given to watch. The stepper's
thread waits on futexes only, and this thread wakes it when the worker it waits for has died.

A slot of the side process's half is in one of three hands: that of the side process, from `take` until it says `ready`
or `failed`; that of the supervisor, until the engine binds the guest; that of the stepper. Reports are in order, and
have been sent before their sender dies: when the side process is dead and all reports are read, the slots in its hand
are those without a bound or ready worker. A newborn of a dead side process (an older `generation`) has no claim to its
slot, and has not touched it: it writes there only when asked, and reads it only when its answer to the side process was
accepted.
"""

import contextlib
import logging
import os
import select
import signal
import socket
import threading
import time
import traceback
from collections.abc import Callable, Sequence

import orjson

from aici_runtime import process
from aici_runtime.channels.envelope import RequestError
from aici_runtime.memory.worker_slots import CANCEL_SIGNAL, WorkerSlot, WorkerSlotTable
from aici_runtime.supervision.worker_handle import WorkerHandle
from aici_runtime.workers.worker_reports import WorkerReports

_UNBORN_S = 5.0
"""A child runs within milliseconds of its fork."""

_FAILED_S = 2.0
"""How long a guest is kept that failed before it was bound: each request with a bad argument leaves one."""

_log = logging.getLogger(__name__)

_MAX_NEWS_BYTES = 64 * 1024
_STACK_BYTES = 16 * 1024 * 1024
"""Processes are forked from this thread, and guests run on what they inherit. Only what is touched takes memory."""


class WorkerSupervisor:
    """`unbound_s`: how long a guest that came up is kept for an engine that does not bind it."""

    def __init__(self, table: WorkerSlotTable, *, unbound_s: float) -> None:
        self._table = table
        self._heard, said = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._heard.setblocking(False)  # recv_fds drops its flags in Python 3.11
        self.reports = WorkerReports(said)
        self._unbound_s = unbound_s
        self._lock = threading.Lock()
        self._workers: dict[int, WorkerHandle] = {}  # by slot; all whose slot is not free
        self._starting: set[int] = set()  # slots
        self._unbound: dict[str, tuple[WorkerHandle, float]] = {}  # and when it expires
        self._abandoned: dict[int, float] = {}  # slots, and when they are free
        self._owed: dict[int, tuple[str | None, str | None]] = {}  # rid and req_id, by number
        self._generation = 0
        self._handlers: dict[int, Callable[[], object]] = {}
        self._epoll = select.epoll()
        self.watch(self._heard.fileno(), self._drain)
        self._alarm = os.eventfd(0)
        self.watch(self._alarm, lambda: os.eventfd_read(self._alarm))

    def start(self) -> None:
        process.start_thread(self._run, stack_bytes=_STACK_BYTES)

    def watch(self, fd: int, handle: Callable[[], object]) -> None:
        """`handle` is called, in the roster's thread and without its lock, whenever `fd` is readable."""
        self._handlers[fd] = handle
        self._epoll.register(fd, select.EPOLLIN)

    def close_descriptors(self) -> None:
        """In a process that was forked from this one, and that they are of no use to."""
        self._epoll.close()
        self._heard.detach()
        for fd in list(self._handlers):
            os.close(fd)

    def _run(self) -> None:
        try:
            while True:
                self.turn()
        finally:  # a bug: nobody would hear of a death any more
            traceback.print_exc()
            os._exit(70)

    def turn(self) -> None:
        """Wait until something happens, and see to it."""
        for fd, _ in self._epoll.poll(self._expire()):
            handle = self._handlers.get(fd)
            if handle is not None:
                handle()

    def _expire(self) -> float | None:
        """End the guests that nobody has bound in time; returns the seconds until there may be another."""
        now = time.monotonic()
        with self._lock:
            for index in [index for index, at in self._abandoned.items() if at <= now]:
                del self._abandoned[index]
                self._table.free(self._table.at(index))
            for req_id in [req_id for req_id, (_, at) in self._unbound.items() if at <= now]:
                self._discard(req_id)
            times = [*self._abandoned.values(), *(at for _, at in self._unbound.values())]
        return min(times) - now if times else None

    def bind(self, req_ids: Sequence[str]) -> list[WorkerHandle]:
        """All or none, whatever is discarded meanwhile. RequestError for one that is not ready or named twice."""
        # The side process told us before it answered the engine, but the thread may not have run since.
        self._catch_up()
        with self._lock:
            for req_id in req_ids:
                if req_id not in self._unbound or req_ids.count(req_id) > 1:
                    raise RequestError(f"invalid req_id {req_id}")
            return [self._unbound.pop(req_id)[0] for req_id in req_ids]

    def adopt_branch(self, slot: WorkerSlot, pid: int) -> WorkerHandle:
        """One that may have announced itself already. Dead where there is no descriptor to watch it by."""
        self._catch_up()
        with self._lock:
            if slot.index in self._workers:
                return self._workers[slot.index]
        try:
            pidfd = os.pidfd_open(pid)
        except ProcessLookupError:
            pidfd = -1
        except OSError:
            _kill_unwatched(pid)
            pidfd = -1
        with self._lock:
            return self._add(slot, pidfd)

    def adopt_pool(self, slot: WorkerSlot, pid: int) -> WorkerHandle:
        pool = self.adopt_branch(slot, pid)
        with self._lock:
            pool.is_pool = True
            if pool.dead:
                self._release(pool)
        return pool

    def abandon(self, slot: WorkerSlot) -> None:
        """A branch that may still come up in it is ended; else the slot is free after a while in which none has."""
        self.reports.abandoned(slot)

    def move(self, worker: WorkerHandle, pool: WorkerHandle) -> None:
        """Its own process ends, and has nothing to do with its slot any more."""
        with self._lock:
            if worker.pidfd >= 0:
                self._forget(worker)
            worker.dead, worker.pool = pool.dead, pool
            pool.members.add(worker)

    def evict(self, worker: WorkerHandle) -> None:
        """The guest is nowhere."""
        with self._lock:
            if worker.pool is not None:
                worker.pool.members.discard(worker)
            worker.dead, worker.pool = True, None
            worker.slot.mark_dead()

    def adopt_member(self, slot: WorkerSlot, pool: WorkerHandle) -> WorkerHandle:
        """A guest that was cloned in its pool."""
        with self._lock:
            worker = WorkerHandle(slot, -1, dead=pool.dead, pool=pool)
            self._workers[slot.index] = worker
            pool.members.add(worker)
            return worker

    def release(self, worker: WorkerHandle) -> None:
        """End the worker; its slot becomes free when it is gone."""
        with self._lock:
            self._release(worker)

    def interrupt(self, worker: WorkerHandle) -> None:
        """Ask the worker to interrupt its guest, whose request has run out of time."""
        worker.slot.cancel()
        with self._lock:
            if not worker.dead:
                process.kill(worker.process, CANCEL_SIGNAL)

    def side_process_died(self) -> tuple[int, list[str | None]]:
        """Undo what it has left. Returns the generation of the next, and whom that owes an answer."""
        self._drain()
        with self._lock:
            for index in self._table.guest_half:
                if index in self._starting:
                    self._release(self._workers[index])
                elif index not in self._workers and not self._table.at(index).is_free():
                    self._table.free(self._table.at(index))
            self._starting.clear()
            self._generation += 1
            owed, self._owed = list(self._owed.values()), {}
            for _, req_id in owed:
                if req_id is not None:
                    self._discard(req_id)
            return self._generation, [rid for rid, _ in owed]

    def _add(self, slot: WorkerSlot, pidfd: int) -> WorkerHandle:
        worker = WorkerHandle(slot, pidfd, dead=pidfd < 0)
        self._workers[slot.index] = worker
        if worker.dead:
            slot.mark_dead()
        else:
            self.watch(pidfd, lambda: self._died(worker))
        return worker

    def _release(self, worker: WorkerHandle) -> None:
        if worker.released:
            return
        worker.released = True
        if worker.dead:
            self._free(worker)
        elif worker.pool is not None:
            worker.slot.request_leave()
            worker.pool.slot.ring()
        else:
            process.kill(worker.pidfd)

    def _free(self, worker: WorkerHandle) -> None:
        worker.dead = True
        if worker.pool is not None:
            worker.pool.members.discard(worker)
        del self._workers[worker.slot.index]
        self._table.free(worker.slot)

    def _died(self, worker: WorkerHandle) -> None:
        self._drain()  # what it or the side process has said before
        with self._lock:
            if worker.pidfd < 0 or not process.has_ended(worker.pidfd):
                return  # the guest has moved meanwhile, and the descriptor may be that of another by now
            self._forget(worker)
            worker.dead = True
            for member in list(worker.members):
                member.dead = True
                member.slot.mark_dead()
                if member.released:
                    self._free(member)
            worker.slot.announce_responses()
            # A template's fork that was killed has no claim to its slot any more once another worker is born there.
            if self._workers.get(worker.slot.index) is worker:
                worker.slot.mark_dead()
                if worker.is_pool:
                    worker.released = True
                if worker.released:
                    self._free(worker)

    def _forget(self, worker: WorkerHandle) -> None:
        self._epoll.unregister(worker.pidfd)
        del self._handlers[worker.pidfd]
        os.close(worker.pidfd)
        worker.pidfd = -1

    def _drain(self) -> bool:
        """Whether there were any reports."""
        num_heard = 0
        with self._lock, contextlib.suppress(BlockingIOError):
            while True:
                message, fds, _, _ = socket.recv_fds(self._heard, _MAX_NEWS_BYTES, 1)
                self._hear(orjson.loads(message), fds)
                num_heard += 1
        return num_heard > 0

    def _catch_up(self) -> None:
        """In another thread than ours. That one may sleep on, without a look at the time that the news have set."""
        if self._drain():
            os.eventfd_write(self._alarm, 1)

    def _hear(self, reports: dict[str, object], fds: list[int]) -> None:
        match reports:
            case {"born": int(index), "generation": int(generation), "pid": int(pid)}:
                self._hear_born(self._table.at(index), generation, pid, fds[0] if fds else -1)
            case {"ready": int(index), "req_id": str(req_id), "failed": bool(has_failed)}:
                self._starting.discard(index)
                self._discard(req_id)
                keep_s = min(self._unbound_s, _FAILED_S) if has_failed else self._unbound_s
                self._unbound[req_id] = (self._workers[index], time.monotonic() + keep_s)
            case {"failed": int(index)}:
                self._starting.discard(index)
                if worker := self._workers.get(index):
                    self._release(worker)
                else:
                    self._table.free(self._table.at(index))
            case {"left": int(index)}:
                worker = self._workers.get(index)
                if worker is not None and worker.released and worker.slot.has_left():
                    self._free(worker)
            case {"abandoned": int(index)}:
                if worker := self._workers.get(index):
                    self._release(worker)
                else:
                    self._abandoned[index] = time.monotonic() + _UNBORN_S
            case {"discard": str(req_id)}:
                self._discard(req_id)
            case {"begin": int(number), "rid": str() | None as rid, "req_id": str() | None as req_id}:
                self._owed[number] = rid, req_id
            case {"end": int(number)}:
                del self._owed[number]

    def _hear_born(self, slot: WorkerSlot, generation: int, pid: int, pidfd: int) -> None:
        """`pidfd`: -1 if it did not fit; then the worker is known, and dead."""
        if slot.index in self._table.fork_half and slot.index in self._workers:
            if pidfd >= 0:
                os.close(pidfd)  # the stepper knows it from its parent
            return
        if pidfd < 0:
            _kill_unwatched(pid)
        if slot.index in self._table.fork_half:
            worker = self._add(slot, pidfd)
            if self._abandoned.pop(slot.index, None):
                self._release(worker)
        elif generation == self._generation:
            self._add(slot, pidfd)
            self._starting.add(slot.index)
        elif pidfd >= 0:
            process.kill(pidfd)
            os.close(pidfd)

    def _discard(self, req_id: str) -> None:
        entry = self._unbound.pop(req_id, None)
        if entry is not None:
            self._release(entry[0])


def _kill_unwatched(pid: int) -> None:
    """Whom nobody can watch must not live."""
    _log.warning("no descriptor is left for another guest; raise the limit (ulimit -n)")
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
