"""The reports of workers and of the side process to the supervisor (`supervision/worker_supervisor.py`)."""

import os
import socket
from collections.abc import Sequence

import orjson

from aici_runtime.memory.worker_slots import WorkerSlot


class WorkerReports:
    """Sends reports to the supervisor, from any process and thread. A report is a datagram: whole or not at all."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock

    def fileno(self) -> int:
        """Return the descriptor of the socket."""
        return self._sock.fileno()

    def taken(self, index: int, descriptor: int) -> None:
        """Hand over the memory of a slot that the side process has taken, before a worker is asked for."""
        self._send({"taken": index}, [descriptor])

    def born(self, slot: WorkerSlot, generation: int) -> socket.socket:
        """Announce this worker. The first act of a worker: from here on the supervisor knows the process.

        Return the worker's end of a socket, on which the stepper hands over the memory of forks.
        """
        pidfd = os.pidfd_open(os.getpid())
        ours, theirs = socket.socketpair()
        try:
            born = {"born": slot.index, "generation": generation, "pid": os.getpid(), "key": slot.key()}
            self._send(born, [pidfd, theirs.fileno()])
        except BaseException:
            ours.close()
            raise
        finally:
            os.close(pidfd)
            theirs.close()
        return ours

    def ready(self, req_id: str, slot: WorkerSlot, *, has_failed: bool = False) -> None:
        """Report that the guest waits to be bound. `has_failed`: the engine knows of a failure and should not need the
        guest."""
        self._send({"ready": slot.index, "req_id": req_id, "failed": has_failed})

    def failed(self, slot: WorkerSlot) -> None:
        """Report that no guest came up in the slot. The supervisor ends the worker of the slot, if any."""
        self._send({"failed": slot.index})

    def abandoned(self, slot: WorkerSlot) -> None:
        """Report that a fork may or may not still come up in the slot."""
        self._send({"abandoned": slot.index})

    def pooled(self, slot: WorkerSlot) -> None:
        """Report that the worker of the slot is a pool."""
        self._send({"pooled": slot.index})

    def joined(self, slot: WorkerSlot, pool: WorkerSlot, generation: int) -> None:
        """Announce a guest that starts in this pool."""
        self._send({"joined": slot.index, "pool": pool.index, "generation": generation, "key": slot.key()})

    def left(self, slot: WorkerSlot) -> None:
        """Report that this pool has no guest in the slot any more."""
        self._send({"left": slot.index, "key": slot.key()})

    def discard(self, req_id: str) -> None:
        """Report that the engine discards the guest `req_id`."""
        self._send({"discard": req_id})

    def begin(self, number: int, rid: str | None, req_id: str | None) -> None:
        """Report a request taken by the side process, which owes `rid` an answer and may bring up the guest
        `req_id`."""
        self._send({"begin": number, "rid": rid, "req_id": req_id})

    def end(self, number: int) -> None:
        """Report that the request `number` is answered."""
        self._send({"end": number})

    def _send(self, message: dict[str, object], fds: Sequence[int] = ()) -> None:
        socket.send_fds(self._sock, [orjson.dumps(message)], fds)
