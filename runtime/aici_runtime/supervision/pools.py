"""`--placement pool`, in the stepper's process: guests move into a few processes when bound
(`workers/pool_process.py`)."""

import time
from collections.abc import Collection, Iterable

from aici_base.errors import ControllerError, QuotaError
from aici_base.ids import SeqId
from aici_runtime.memory.worker_slots import WorkerSlotTable, owner_id
from aici_runtime.supervision.worker_handle import WorkerHandle
from aici_runtime.supervision.worker_supervisor import WorkerSupervisor
from aici_runtime.workers import worker_requests

_OWNER = owner_id("aicirt-pool")
_ANSWER_S = 5.0
"""A move takes milliseconds. The limit is generous because a timeout ends a process, and a machine can be very busy."""

_TOO_LATE = f"no answer within {_ANSWER_S:.0f} s"


class GuestPools:
    """At most `size` pools, started as guests need them. With `size` 0, guests stay in the processes of their birth."""

    def __init__(self, *, table: WorkerSlotTable, supervisor: WorkerSupervisor, size: int) -> None:
        self._table = table
        self._supervisor = supervisor
        self._size = size
        self._pools: list[WorkerHandle] = []

    def place(self, worker: WorkerHandle, busy: Collection[WorkerHandle]) -> str:
        """Move a guest into a pool, but not into a pool of `busy`, which would not answer.

        Return the reason if the guest is lost; a guest that cannot move stays and is fine.
        """
        if self._size == 0 or worker.dead:
            return ""
        pool = self._pool_with_room() or self._start(worker) or self._least_used()
        # A released worker must not get requests: the slot passes to another worker as soon as the process is gone.
        if pool is None or pool in busy or worker.released or self._request(worker, worker_requests.move()) != "moved":
            return _TOO_LATE if worker.released else ""
        self._supervisor.move(worker, pool)
        answer = self._request(pool, worker_requests.adopt(worker.slot.index))
        if answer == "ok":
            return ""
        if not pool.released:  # else the pool owns the slot as long as the pool lives
            self._supervisor.evict(worker)
        return f"cannot move into a pool: {answer}"

    def clone(self, parent: WorkerHandle, pool: WorkerHandle, seq_id: SeqId) -> WorkerHandle:
        """Fork a guest inside of a pool. Raises AiciError."""
        slot = self._table.take(self._table.fork_half, self._table.owner(parent.slot))
        answer = self._request(pool, worker_requests.clone(seq_id, parent.slot.index, slot.index))
        if answer == "ok":
            return self._supervisor.adopt_member(slot, pool)
        if pool.released:
            self._supervisor.release(self._supervisor.adopt_member(slot, pool))
        else:
            self._table.free(slot)
        raise ControllerError(answer)

    def ring(self, workers: Iterable[WorkerHandle | None]) -> None:
        """Wake the pools of these workers, after requests for their guests were written."""
        if self._size == 0:
            return
        for pool in {worker.pool for worker in workers if worker is not None and worker.pool is not None}:
            pool.slot.ring()

    def _pool_with_room(self) -> WorkerHandle | None:
        """Return a pool for a further guest; None means that a new pool is to be started."""
        self._pools = [pool for pool in self._pools if not (pool.dead or pool.released)]
        is_full = len(self._pools) == self._size or not all(pool.members for pool in self._pools)
        return self._least_used() if is_full else None

    def _least_used(self) -> WorkerHandle | None:
        return min(self._pools, key=lambda pool: len(pool.members), default=None)

    def _start(self, worker: WorkerHandle) -> WorkerHandle | None:
        """Start a pool, as a fork of a process with a guest. Return None on failure."""
        try:
            slot = self._table.take(self._table.fork_half, _OWNER)
        except QuotaError:
            return None
        answer = self._request(worker, worker_requests.start_pool(slot.index))
        if not answer.isdigit():
            if worker.released or worker.dead:
                self._supervisor.abandon(slot)
            else:
                self._table.free(slot)
            return None
        pool = self._supervisor.adopt_pool(slot, int(answer))
        if slot.wait_response(time.monotonic() + _ANSWER_S) != b"ok":
            self._supervisor.release(pool)
            return None
        self._pools.append(pool)
        return pool

    def _request(self, worker: WorkerHandle, request: bytes) -> str:
        worker.slot.send_request(request)
        worker.slot.ring()
        if worker.dead:
            worker.slot.mark_dead()
        answer = worker.slot.wait_response(time.monotonic() + _ANSWER_S)
        if answer is None:
            self._supervisor.release(worker)  # a late answer must never arrive
            return _TOO_LATE
        return answer.decode() or "the process has died"
