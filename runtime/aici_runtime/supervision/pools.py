"""Pools, in the stepper's process: forks inside of a pool, and the bell (`workers/pool_process.py`)."""

import time
from collections.abc import Iterable

from aici_base.errors import ControllerError
from aici_base.ids import SeqId
from aici_runtime.memory.worker_slots import WorkerSlotTable
from aici_runtime.supervision.worker_handle import WorkerHandle
from aici_runtime.supervision.worker_supervisor import WorkerSupervisor
from aici_runtime.workers import worker_requests

_ANSWER_S = 5.0
"""A fork takes milliseconds. The limit is generous because a timeout ends a process, and a machine can be very busy."""


class GuestPools:
    """What the stepper asks of pools. The side process starts pools, and guests in them (`pool_starts.py`)."""

    def __init__(self, *, table: WorkerSlotTable, supervisor: WorkerSupervisor) -> None:
        self._table = table
        self._supervisor = supervisor

    def clone(self, parent: WorkerHandle, pool: WorkerHandle, seq_id: SeqId) -> WorkerHandle:
        """Fork a guest inside of a pool. Raises AiciError."""
        slot = self._table.take(self._table.fork_half, self._table.owner(parent.slot))
        if not self._supervisor.hand_over(pool, slot):
            self._table.free(slot)
            raise ControllerError("the process has died")
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
        for pool in {worker.pool for worker in workers if worker is not None and worker.pool is not None}:
            pool.slot.ring()

    def _request(self, pool: WorkerHandle, request: bytes) -> str:
        pool.slot.send_request(request)
        pool.slot.ring()
        if pool.dead:
            pool.slot.mark_dead()
        answer = pool.slot.wait_response(time.monotonic() + _ANSWER_S)
        if answer is None:
            self._supervisor.release(pool)  # a late answer must never arrive
            return f"no answer within {_ANSWER_S:.0f} s"
        return answer.decode() or "the process has died"
