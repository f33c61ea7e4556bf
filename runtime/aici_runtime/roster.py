"""Which workers exist. Learns of new guests from the side process and of deaths from the kernel; frees slots.

A thread sleeps on the pidfd of every worker, on the side process's news and on whatever must end the runtime. The
stepper's thread waits on futexes only, and this thread wakes it when the worker it waits for has died.
"""

import os
import select
import socket
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import orjson

from aici_runtime import process
from aici_runtime.envelope import RequestError
from aici_runtime.slots import CANCEL_SIGNAL, Slot, SlotTable

_MAX_NEWS_BYTES = 64 * 1024


@dataclass(slots=True, eq=False)
class WorkerHandle:
    """`released`: the slot is to be freed as soon as the process is gone."""

    slot: Slot
    pid: int
    pidfd: int
    dead: bool = False
    released: bool = False


class News:
    """The side process's end of the news. `send` is atomic (one datagram), from any thread."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock

    def ready(self, *, req_id: str, slot: Slot, pid: int, pidfd: int) -> None:
        self._send({"req_id": req_id, "slot": slot.index, "pid": pid}, [pidfd])

    def failed(self, *, slot: Slot, pid: int, pidfd: int) -> None:
        """The guest did not come up, and has been killed: its slot can be freed when it is gone."""
        self._send({"req_id": None, "slot": slot.index, "pid": pid}, [pidfd])

    def discard(self, req_id: str) -> None:
        self._send({"discard": req_id}, [])

    def _send(self, message: dict[str, object], fds: list[int]) -> None:
        socket.send_fds(self._sock, [orjson.dumps(message)], fds)


class Roster:
    def __init__(self, table: SlotTable, news: socket.socket) -> None:
        self._table = table
        self._news = news
        news.setblocking(False)  # recv_fds drops its flags in Python 3.11
        self._lock = threading.Lock()
        self._unbound: dict[str, WorkerHandle] = {}
        self._by_pidfd: dict[int, WorkerHandle] = {}
        self._epoll = select.epoll()
        self._epoll.register(news, select.EPOLLIN)

    def start(self, fatal: Iterable[int], leave: Callable[[], None]) -> None:
        """Begin to watch. `leave` is called, in the thread, when one of the `fatal` descriptors becomes readable."""
        fatal = frozenset(fatal)
        for fd in fatal:
            self._epoll.register(fd, select.EPOLLIN)
        process.start_thread("roster", lambda: self._watch(fatal, leave))

    def _watch(self, fatal: frozenset[int], leave: Callable[[], None]) -> None:
        while True:
            for fd, _ in self._epoll.poll():
                if fd in fatal:
                    leave()
                with self._lock:
                    if fd == self._news.fileno():
                        self._drain()
                    elif fd in self._by_pidfd:
                        self._died(self._by_pidfd.pop(fd))

    def bind(self, req_ids: Sequence[str]) -> list[WorkerHandle]:
        """All or none, whatever is discarded meanwhile. RequestError for one that is not ready or named twice."""
        with self._lock:
            # The side process told us before it answered the engine, but the thread may not have run since.
            self._drain()
            for req_id in req_ids:
                if req_id not in self._unbound or req_ids.count(req_id) > 1:
                    raise RequestError(f"invalid req_id {req_id}")
            return [self._unbound.pop(req_id) for req_id in req_ids]

    def adopt_branch(self, slot: Slot, pid: int) -> WorkerHandle:
        try:
            pidfd = os.pidfd_open(pid)
        except ProcessLookupError:
            slot.mark_dead()
            return WorkerHandle(slot, pid, -1, dead=True)
        with self._lock:
            return self._add(slot, pid, pidfd)

    def release(self, worker: WorkerHandle) -> None:
        """End the worker; its slot becomes free when it is gone."""
        with self._lock:
            self._release(worker)

    def interrupt(self, worker: WorkerHandle) -> None:
        """Ask the worker to interrupt its guest, whose request has run out of time."""
        worker.slot.cancel()
        with self._lock:
            if not worker.dead:
                process.kill(worker.pidfd, CANCEL_SIGNAL)

    def _add(self, slot: Slot, pid: int, pidfd: int) -> WorkerHandle:
        worker = WorkerHandle(slot, pid, pidfd)
        self._by_pidfd[pidfd] = worker
        self._epoll.register(pidfd, select.EPOLLIN)
        return worker

    def _release(self, worker: WorkerHandle) -> None:
        if worker.released:
            return
        worker.released = True
        if worker.dead:
            worker.slot.free()
        else:
            process.kill(worker.pidfd)

    def _died(self, worker: WorkerHandle) -> None:
        self._epoll.unregister(worker.pidfd)
        os.close(worker.pidfd)
        worker.pidfd = -1
        worker.dead = True
        worker.slot.mark_dead()
        if worker.released:
            worker.slot.free()

    def _drain(self) -> None:
        while True:
            try:
                message, fds, _, _ = socket.recv_fds(self._news, _MAX_NEWS_BYTES, 1)
            except BlockingIOError:
                return
            if not message:
                return  # the side process is gone, which ends the runtime
            news = orjson.loads(message)
            if "discard" in news:
                self._discard(news["discard"])
                continue
            worker = self._add(self._table.at(news["slot"]), news["pid"], fds[0])
            if news["req_id"] is None:
                self._release(worker)
            else:
                self._discard(news["req_id"])
                self._unbound[news["req_id"]] = worker

    def _discard(self, req_id: str) -> None:
        worker = self._unbound.pop(req_id, None)
        if worker is not None:
            self._release(worker)
