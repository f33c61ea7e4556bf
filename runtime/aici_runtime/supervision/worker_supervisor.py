"""The register of live workers. The supervisor watches the processes and frees the worker slots.

Workers announce themselves, the side process reports whether a guest came up, the kernel reports deaths.

The supervisor's thread sleeps on the pidfd of every worker, on the socket of reports and on any other descriptor given
to `watch`. The stepper's thread waits on futexes only, or on the socket of reports for a fork to announce itself; the
supervisor's thread wakes the stepper when the worker waited for has died.

A slot of the guest half has one of three owners. The side process owns the slot from `take` until the report `ready` or
`failed`. Then the supervisor owns the slot until the engine binds the guest. Then the stepper owns the slot. Reports
arrive in order and leave before their sender dies. So, with the side process dead and all reports read, the slots owned
by the side process are the slots without a bound or ready worker. A new worker of a dead side process has an older
`generation` and no claim to the slot. Such a worker has not touched the slot: a worker writes there only on request,
and reads there only after the side process has accepted the answer on the `setup` socket.
"""

import contextlib
import logging
import math
import os
import select
import socket
import sys
import threading
import time
import traceback
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence

import orjson

from aici_runtime import process
from aici_runtime.channels.envelope import RequestError
from aici_runtime.memory.worker_slots import BY_SUPERVISOR, CANCEL_SIGNAL, WorkerSlot, WorkerSlotTable
from aici_runtime.supervision import worker_priority
from aici_runtime.supervision.worker_handle import WorkerHandle
from aici_runtime.supervision.worker_identity import is_of, kill_unwatched, watchable
from aici_runtime.workers.worker_reports import WorkerReports

_ABANDONED_S = 5.0
"""Time until an abandoned slot is free. A fork announces itself within milliseconds, or never."""

_BIRTH_S = 5.0
"""The longest wait for a fork to announce itself. A death ends the wait at once; a machine can be very busy."""

_SLOW_START_S = 0.3
"""A guest that takes longer to start computes with what others leave, until it is up."""

_FAILED_S = 2.0
"""Lifetime of a guest that failed before the engine could bind the guest: every request with a bad argument
leaves one."""

_log = logging.getLogger(__name__)

_FROM_WORKERS = frozenset({"born", "joined", "left"})
"""Reports that a worker sends; all others come from the runtime itself."""

_MAX_REPORT_BYTES = 64 * 1024
_STACK_BYTES = 16 * 1024 * 1024
"""The supervisor's thread forks processes, and guests run on the inherited stack. Only touched pages take memory."""


class WorkerSupervisor:
    """Owns the handles of all workers. `unbound_s`: lifetime of a guest that came up and is not bound by the engine."""

    def __init__(self, table: WorkerSlotTable, *, unbound_s: float) -> None:
        self._table = table
        self._report_socket, reporting = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._report_socket.setblocking(False)
        self._report_socket.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self._trusted = {os.getpid()}
        self.reports = WorkerReports(reporting)
        self._unbound_s = unbound_s
        self._lock = threading.Lock()
        self._workers: dict[int, WorkerHandle] = {}  # by slot index, for all slots in use
        self._starting: dict[int, float] = {}  # slot indices, with the time when the worker counts as slow
        self._lowers_slow = worker_priority.can_restore()
        self._unbound: dict[str, tuple[WorkerHandle, float]] = {}  # by req_id, with the time of expiry
        self._abandoned: dict[int, float] = {}  # slot indices, with the time when the slot becomes free
        self._unanswered: dict[int, tuple[str | None, str | None]] = {}  # rid and req_id of the requests in progress
        self._generation = 0
        self._handlers: dict[int, Callable[[], object]] = {}
        self._epoll = select.epoll()
        self.watch(self._report_socket.fileno(), self._read_reports)
        self._alarm = os.eventfd(0)
        self.watch(self._alarm, lambda: os.eventfd_read(self._alarm))
        self._awaited: WorkerHandle | None = None  # a worker without `control`, for which the stepper waits
        self._awaited_news = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)

    @contextlib.contextmanager
    def starting_side_process(self) -> Iterator[Callable[[int], None]]:
        """Yield a function that takes the pid of the new side process, whose reports are trusted as our own."""

        def trust(pid: int) -> None:
            self._trusted = {os.getpid(), pid}

        with self._lock:  # no report is read before the pid is known
            yield trust

    def start(self) -> None:
        """Start the supervisor's thread."""
        process.start_thread(self._run, stack_bytes=_STACK_BYTES)

    def watch(self, fd: int, handle: Callable[[], object]) -> None:
        """Call `handle` in the supervisor's thread, without the lock, whenever `fd` is readable."""
        self._handlers[fd] = handle
        self._epoll.register(fd, select.EPOLLIN)

    def close_descriptors(self) -> None:
        """Close the inherited descriptors. To be called in a process forked from the stepper's."""
        self._epoll.close()
        self._report_socket.detach()
        for fd in [*self._handlers, self._awaited_news]:
            os.close(fd)
        for worker in self._workers.values():
            if worker.control is not None:
                worker.control.close()

    def _run(self) -> None:
        try:
            while True:
                self.run_once()
        finally:  # only after a bug; without this thread nobody would hear of a death
            traceback.print_exc()
            os._exit(70)

    def run_once(self) -> None:
        """Wait for events and handle them."""
        for fd, _ in self._epoll.poll(self._expire()):
            handle = self._handlers.get(fd)
            if handle is not None:
                handle()

    def _expire(self) -> float | None:
        """End the guests with an expired time to be bound. Return the seconds until the next expiry."""
        now = time.monotonic()
        with self._lock:
            for index in [index for index, at in self._abandoned.items() if at <= now]:
                del self._abandoned[index]
                self._table.free(self._table.at(index))
            for req_id in [req_id for req_id, (_, at) in self._unbound.items() if at <= now]:
                self._discard(req_id)
            times = [*self._abandoned.values(), *(at for _, at in self._unbound.values())]
            if self._lowers_slow:
                for index, at in self._starting.items():
                    if at <= now and (worker := self._workers.get(index)) is not None and not worker.dead:
                        worker.lower()
                    elif at > now:
                        times.append(at)
        soonest = min(times, default=math.inf)
        return None if soonest == math.inf else soonest - now

    def bind(self, req_ids: Sequence[str]) -> list[WorkerHandle]:
        """Return the workers of waiting guests. Raises RequestError, and binds none, if one is not ready or named
        twice.

        Atomic: a concurrent discard takes effect either before or after.
        """
        # The side process sent the report before the answer to the engine, but the thread may not have run since.
        self._read_reports_early()
        with self._lock:
            for req_id in req_ids:
                if req_id not in self._unbound or req_ids.count(req_id) > 1:
                    raise RequestError(f"invalid req_id {req_id}")
            return [self._unbound.pop(req_id)[0] for req_id in req_ids]

    def adopt_fork(self, slot: WorkerSlot, pid: int, parent: WorkerHandle | None = None) -> WorkerHandle:
        """Return the handle of a fork of `parent`, which may have announced itself already.

        Without a descriptor left, the fork is killed and the handle is dead.
        """
        self._read_reports_early()
        with self._lock:  # held to the end: the other thread may read the announcement at any time
            known = self._workers.get(slot.index)
            return known or self._add(slot, watchable(pid, parent), pid=pid)

    def hand_over(self, worker: WorkerHandle, slot: WorkerSlot) -> bool:
        """Send the memory of a fork's slot to the parent, or to its pool. Return whether they can receive it."""
        self._await_birth(worker)
        with self._lock:
            is_sent = worker.send_memory(self._table.descriptor(slot))
        self._table.close_descriptor(slot)
        return is_sent

    def _await_birth(self, worker: WorkerHandle) -> None:
        """Wait until the worker has announced itself. A fork of a fork is asked for before the fork's first answer."""
        until = time.monotonic() + _BIRTH_S
        # Either thread may read the announcement: this thread from the socket, or the supervisor's, which tells.
        news = select.poll()
        for fd in (self._report_socket.fileno(), self._awaited_news):
            news.register(fd, select.POLLIN)
        while True:
            self._read_reports_early()
            with self._lock:
                has_news = worker.control is not None or worker.dead
                left_s = until - time.monotonic()
                self._awaited = None if has_news or left_s <= 0 else worker
                with contextlib.suppress(BlockingIOError):
                    os.eventfd_read(self._awaited_news)
                if self._awaited is None:
                    return
            news.poll(left_s * 1000)

    def _tell_waiting(self, worker: WorkerHandle) -> None:
        """Wake the stepper if it waits for the worker, which has announced itself or died. The caller has the lock."""
        if self._awaited is worker:
            os.eventfd_write(self._awaited_news, 1)

    def abandon(self, slot: WorkerSlot) -> None:
        """Give up on a fork. The supervisor ends the fork if it still comes up, and frees the slot after a while if
        not."""
        self.reports.abandoned(slot)

    def adopt_member(self, slot: WorkerSlot, pool: WorkerHandle) -> WorkerHandle:
        """Record a guest cloned inside of a pool."""
        with self._lock:
            return self._join(slot, pool)

    def release(self, worker: WorkerHandle) -> None:
        """End the worker. The slot becomes free when the process is gone."""
        with self._lock:
            self._release(worker)

    def interrupt(self, worker: WorkerHandle) -> None:
        """Ask the worker to interrupt the guest after a timeout."""
        worker.slot.cancel()
        with self._lock:
            if not worker.dead:
                process.kill(worker.process_fd, CANCEL_SIGNAL)

    def side_process_died(self) -> tuple[int, list[str | None]]:
        """Undo the unfinished work of a dead side process. Return the generation of the next side process, and the
        `rid` of every unanswered request."""
        self._read_reports()
        with self._lock:
            for index in self._table.guest_half:
                if index in self._starting and index in self._workers:
                    self._release(self._workers[index])
                elif index not in self._workers and not self._table.at(index).is_free():
                    self._table.free(self._table.at(index))
            self._starting.clear()
            self._generation += 1
            unanswered, self._unanswered = list(self._unanswered.values()), {}
            for _, req_id in unanswered:
                if req_id is not None:
                    self._discard(req_id)
            return self._generation, [rid for rid, _ in unanswered]

    def _add(self, slot: WorkerSlot, pidfd: int, control: int = -1, *, pid: int = 0) -> WorkerHandle:
        worker = WorkerHandle(slot, pidfd, _control(control), dead=pidfd < 0, pid=pid)
        self._workers[slot.index] = worker
        if worker.dead:
            slot.mark_dead()
        else:
            slot.mark_alive()
            self.watch(pidfd, lambda: self._died(worker))
        return worker

    def _join(self, slot: WorkerSlot, pool: WorkerHandle) -> WorkerHandle:
        worker = self._workers[slot.index] = WorkerHandle(slot, -1, dead=pool.dead, pool=pool)
        pool.members.add(worker)
        if worker.dead:
            slot.mark_dead()
        else:
            slot.mark_alive()
        return worker

    def _release(self, worker: WorkerHandle) -> None:
        if worker.released:
            return
        worker.released = True
        if worker.dead:
            self._free(worker)
        elif worker.pool is not None:
            worker.slot.request_leave()
            worker.pool.slot.ring(BY_SUPERVISOR)
            if not worker.slot.has_answered():  # a guest that computes, or still starts, hears no bell
                process.kill(worker.pool.pidfd, CANCEL_SIGNAL)
        else:
            worker.kill()

    def _free(self, worker: WorkerHandle) -> None:
        worker.dead = True
        if worker.pool is not None:
            worker.pool.members.discard(worker)
        del self._workers[worker.slot.index]
        self._table.free(worker.slot)

    def _died(self, worker: WorkerHandle) -> None:
        self._read_reports()  # first the reports sent before the death
        with self._lock:
            if worker.pidfd < 0 or not process.has_ended(worker.pidfd):
                return  # the guest has moved, and the number of the descriptor may be in use again
            self._forget(worker)
            worker.dead = True
            self._tell_waiting(worker)
            for member in list(worker.members):
                member.dead = True
                if self._workers.get(member.slot.index) is member:  # else a guest that was starting, and does elsewhere
                    member.slot.mark_dead()
                    if member.released:
                        self._free(member)
            worker.slot.announce_responses()
            # A killed fork of a template loses the claim to the slot once another worker has started there.
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
        if worker.control is not None:
            worker.control.close()

    def _read_reports(self) -> bool:
        """Read and handle all waiting reports. Return whether there were any."""
        num_reports = 0
        with self._lock, contextlib.suppress(BlockingIOError):
            while True:
                message, fds, sender = _receive(self._report_socket)
                num_reports += 1
                report = orjson.loads(message)
                if not _FROM_WORKERS.isdisjoint(report) or sender in self._trusted:
                    self._handle_report(report, fds, sender)
                else:
                    _log.warning("a report of process %d is ignored: workers only announce themselves", sender)
                    _close(fds)
        return num_reports > 0

    def _read_reports_early(self) -> None:
        """Read reports in the stepper's thread. The supervisor's thread wakes up to look at the new expiry times."""
        if self._read_reports():
            os.eventfd_write(self._alarm, 1)

    def _handle_report(self, report: dict[str, object], fds: list[int], sender: int) -> None:
        match report:
            case {"born": int(index), "generation": int(generation), "pid": int(pid), "key": str(key)}:
                slot = self._table.at(index)
                if len(fds) < 2:  # no descriptor was left
                    _close(fds)
                    fds = [-1, -1]
                if pid != sender or key != slot.key() or not is_of(fds[0], pid):
                    generation = -1  # a stranger to this slot
                self._handle_birth(slot, generation, sender, *fds)
            case {"taken": int(index)}:
                if fds:
                    self._table.attach(index, fds[0])
            case {"ready": int(index), "req_id": str(req_id)} if index not in self._workers:
                _log.warning("the guest of %s is lost: its process could not be watched", req_id)
                self._table.free(self._table.at(index))
            case {"ready": int(index), "req_id": str(req_id), "failed": bool(has_failed)}:
                if self._starting.pop(index, None) is not None and self._workers[index].pool is None:
                    self._workers[index].restore()
                self._discard(req_id)
                keep_s = min(self._unbound_s, _FAILED_S) if has_failed else self._unbound_s
                self._unbound[req_id] = (self._workers[index], time.monotonic() + keep_s)
            case {"failed": int(index)}:
                self._starting.pop(index, None)
                if worker := self._workers.get(index):
                    self._release(worker)
                else:
                    self._table.free(self._table.at(index))
            case {"pooled": int(index)}:
                self._starting.pop(index, None)
                if worker := self._workers.get(index):
                    worker.is_pool = True
                    if worker.dead:
                        self._release(worker)
            case {"joined": int(index), "pool": int(pool_index), "generation": int(generation), "key": str(key)}:
                pool = self._workers.get(pool_index)
                is_known = (
                    pool is not None and pool.is_pool and pool.pid == sender and key == self._table.at(index).key()
                )
                known = self._workers.get(index)
                is_free = known is None or known.dead
                if pool is not None and is_known and is_free and generation == self._generation:
                    self._join(self._table.at(index), pool)
                    self._starting[index] = math.inf  # the others of the pool do not compute with what is left
            case {"left": int(index), "key": str(key)}:
                worker = self._workers.get(index)
                if (
                    worker is not None
                    and worker.pool is not None
                    and worker.pool.pid == sender
                    and key == worker.slot.key()
                ):
                    worker.dead = True
                    if worker.released:
                        self._free(worker)
            case {"abandoned": int(index)}:
                if worker := self._workers.get(index):
                    self._release(worker)
                else:
                    self._abandoned[index] = time.monotonic() + _ABANDONED_S
            case {"discard": str(req_id)}:
                self._discard(req_id)
            case {"begin": int(number), "rid": str() | None as rid, "req_id": str() | None as req_id}:
                self._unanswered[number] = rid, req_id
            case {"end": int(number)}:
                del self._unanswered[number]

    def _handle_birth(self, slot: WorkerSlot, generation: int, pid: int, pidfd: int, control: int) -> None:
        """Handle a birth. `pidfd` -1 means that no descriptor was left: the worker is recorded as dead."""
        if generation < 0:
            _close([pidfd, control])
            kill_unwatched(pid)
            return
        if slot.index in self._table.fork_half and slot.index in self._workers:
            _close([pidfd])  # the stepper knows the fork through the parent
            self._workers[slot.index].control = _control(control)
            self._tell_waiting(self._workers[slot.index])
            return
        if pidfd < 0:
            kill_unwatched(pid)
        if slot.index in self._table.fork_half:
            worker = self._add(slot, pidfd, control, pid=pid)
            if self._abandoned.pop(slot.index, None):
                self._release(worker)
        elif generation == self._generation:
            self._add(slot, pidfd, control, pid=pid)
            self._starting[slot.index] = time.monotonic() + _SLOW_START_S
        elif pidfd >= 0:
            process.kill(pidfd)
            _close([pidfd, control])

    def _discard(self, req_id: str) -> None:
        entry = self._unbound.pop(req_id, None)
        if entry is not None:
            self._release(entry[0])


def _control(descriptor: int) -> socket.socket | None:
    if descriptor < 0:
        return None
    # Naming all three saves three system calls.
    return socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, 0, fileno=descriptor)


def _receive(sock: socket.socket) -> tuple[bytes, list[int], int]:
    """Return a report, its descriptors, and the pid of its sender as the kernel tells it."""
    message, ancillary, _, _ = sock.recvmsg(_MAX_REPORT_BYTES, socket.CMSG_SPACE(2 * 4) + socket.CMSG_SPACE(3 * 4))
    fds, sender = array("i"), -1
    for level, kind, data in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            fds.frombytes(data[: len(data) - len(data) % fds.itemsize])
        elif (level, kind) == (socket.SOL_SOCKET, socket.SCM_CREDENTIALS):
            sender = int.from_bytes(data[:4], sys.byteorder)
    return message, list(fds), sender


def _close(descriptors: Iterable[int]) -> None:
    for descriptor in descriptors:
        if descriptor >= 0:
            os.close(descriptor)
