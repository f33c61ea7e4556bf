"""The reports of workers and of the side process to the supervisor (`supervision/worker_supervisor.py`)."""

import os
import socket
from collections.abc import Sequence

import orjson

from aici_runtime.memory.worker_slots import WorkerSlot


class WorkerReports:
    """What the supervisor is told, from any process and thread. Each is one datagram: whole or not at all."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock

    def born(self, slot: WorkerSlot, generation: int) -> None:
        """A worker's first act: from here on it cannot be lost."""
        pidfd = os.pidfd_open(os.getpid())
        try:
            self._send({"born": slot.index, "generation": generation, "pid": os.getpid()}, [pidfd])
        finally:
            os.close(pidfd)

    def ready(self, req_id: str, slot: WorkerSlot, *, has_failed: bool = False) -> None:
        """`has_failed`: its engine knows, and should have no use for it."""
        self._send({"ready": slot.index, "req_id": req_id, "failed": has_failed})

    def failed(self, slot: WorkerSlot) -> None:
        """No guest came up in the slot. Its worker, if there ever was one, is ended."""
        self._send({"failed": slot.index})

    def abandoned(self, slot: WorkerSlot) -> None:
        """Nobody knows whether a branch will still come up in it."""
        self._send({"abandoned": slot.index})

    def left(self, slot: WorkerSlot) -> None:
        """A guest that was released is no more in its pool."""
        self._send({"left": slot.index})

    def discard(self, req_id: str) -> None:
        self._send({"discard": req_id})

    def begin(self, number: int, rid: str | None, req_id: str | None) -> None:
        """The side process has taken a request, and owes an answer to `rid`; it may bring up the guest `req_id`."""
        self._send({"begin": number, "rid": rid, "req_id": req_id})

    def end(self, number: int) -> None:
        self._send({"end": number})

    def _send(self, message: dict[str, object], fds: Sequence[int] = ()) -> None:
        socket.send_fds(self._sock, [orjson.dumps(message)], fds)
