"""Forks of guests, made beside the steps: a fork takes milliseconds of a processor, and no other guest waits for it.

`clone` only takes an order. `hold` keeps back what the parent and the new forks are asked in the same command.
`advance` lets the workers of parents fork, a few at a time, and sends a sequence its request as soon as its fork is
there. A sequence without its fork at the end of a command is late, as a guest that still computes: the command goes on
without the sequence, and a later command finds the answer. The order of the guest's calls, the fork groups and the ids
are the same, however long a fork takes.

A command without `patience` waits for all its guests, so `advance` ends when all forks are there. A guest in a pool is
copied at once, which takes no process.
"""

import math
import os
import time
from collections.abc import Collection, Iterable, Iterator

import orjson

from aici_base.errors import AiciError
from aici_base.ids import SeqId
from aici_runtime.flags import Limits
from aici_runtime.memory.worker_slots import WorkerSlot, WorkerSlotTable
from aici_runtime.protocol.fork_queue import ForkOrder, ForkQueue
from aici_runtime.protocol.guest_sequences import GuestSequence, GuestSequences, Lateness
from aici_runtime.protocol.worker_results import NO_ANSWER
from aici_runtime.supervision.pools import GuestPools
from aici_runtime.supervision.worker_handle import WorkerHandle
from aici_runtime.supervision.worker_supervisor import WorkerSupervisor
from aici_runtime.workers import worker_requests

_FORK_S = 5.0
"""A part of an order takes 15 ms. The limit is generous because a timeout kills the parent, and a machine can be very
busy."""


class GuestForks:
    """The forks in the making. A sequence *in the making* is a new fork without a worker, or a parent that still
    forks."""

    def __init__(
        self,
        sequences: GuestSequences,
        *,
        table: WorkerSlotTable,
        supervisor: WorkerSupervisor,
        pools: GuestPools,
        limits: Limits,
    ) -> None:
        self._sequences = sequences
        self._table = table
        self._supervisor = supervisor
        self._pools = pools
        self._max_forks = limits.forks
        num_cores = len(os.sched_getaffinity(0))
        self._max_in_progress = 2 * num_cores
        self._max_beside_others = max(1, num_cores // 2)
        self._queue = ForkQueue()
        self._orders: dict[SeqId, ForkOrder] = {}
        """The orders by the ids of the parent and of the forks in the making."""
        self._held: dict[SeqId, bytes] = {}
        """What the sequences in the making are to be asked."""

    def __contains__(self, seq_id: SeqId) -> bool:
        return seq_id in self._orders

    def __len__(self) -> int:
        return len(self._orders)

    def clone(self, seq_id: SeqId, parent_id: SeqId) -> str:
        """Order a fork of the parent. Return the reason of a refusal, or an empty string.

        After a refusal, `seq_id` exists too, as a failed sequence.
        """
        if seq_id in self._sequences:
            return f"duplicate id {seq_id} (cloning {parent_id})"
        order = self._orders.get(parent_id)
        if order is not None and order.parent_id != parent_id:
            self.advance(math.inf)  # a fork of a fork of the same command
        reason = self._refusal(parent_id)
        if not reason:
            try:
                self._order(seq_id, parent_id)
            except AiciError as error:
                reason = str(error)
        if reason:
            self._sequences.add(seq_id, GuestSequence("", None, f"Worker: {reason}"))
        return reason

    def hold(self, requests: Iterable[tuple[SeqId, bytes]]) -> Iterable[tuple[SeqId, bytes]]:
        """Return the requests, but those to sequences in the making, which get them later."""
        return self._without_held(requests) if self._orders else requests

    def _without_held(self, requests: Iterable[tuple[SeqId, bytes]]) -> Iterator[tuple[SeqId, bytes]]:
        for seq_id, request in requests:
            if seq_id in self._orders:
                self._held[seq_id] = request
            else:
                yield seq_id, request

    def advance(self, deadline: float, *, beside_others: bool = False) -> list[SeqId]:
        """Let workers fork until all forks are there or `deadline` has passed (time.monotonic()). Return the sequences
        that have got their requests, and were not late before.

        `beside_others`: others have work, and shall keep the processors.
        """
        if not self._orders:
            return []
        sent: list[SeqId] = []
        if any(order.parent_id not in self._held for order in self._orders.values()):
            deadline = math.inf  # the parent is not asked, so nothing could tell that it is late
        while True:
            for order in self._queue.start(self._max_beside_others if beside_others else self._max_in_progress):
                self._begin(order)
            answered = [order for order in self._queue.in_progress if self._hear(order, deadline, sent)]
            if not answered:
                return sent

    def mark_late(self, since: float) -> None:
        """Take all sequences in the making for late from now on, if they are not yet."""
        for seq_id in self._orders:
            sequence = self._sequences[seq_id]
            sequence.late = sequence.late or Lateness(since)

    def drop(self, freed: Collection[SeqId]) -> None:
        """Give up the forks in the making that are freed, or whose parent is freed. To be called before they are
        freed."""
        for seq_id in freed:
            order = self._orders.get(seq_id)
            if order is None:
                continue
            if order.parent_id == seq_id:
                self._give_up(order, "died")
                continue
            del self._orders[seq_id]
            self._held.pop(seq_id, None)
            for number, (other, slot) in enumerate(order.begun):
                if other == seq_id:
                    order.begun[number] = (None, slot)
            for entry in [entry for entry in order.waiting if entry[0] == seq_id]:
                order.waiting.remove(entry)
                self._table.free(entry[1])

    def _refusal(self, parent_id: SeqId) -> str:
        if parent_id not in self._sequences:
            return f"invalid id {parent_id}"
        parent = self._sequences[parent_id]
        if parent.worker is None:
            return f"cannot clone {parent_id}: {parent.failure}"
        if parent.worker.dead:
            self._sequences.fail(parent, "Worker: died")
            return "died"
        if parent.late is not None:
            return f"cannot clone {parent_id}: it is still computing"
        if self._num_guests(parent.req_id) >= self._max_forks:
            return f"too many forks (max={self._max_forks})"
        return ""

    def _num_guests(self, req_id: str) -> int:
        return sum(
            sequence.req_id == req_id and (sequence.worker is not None or seq_id in self._orders)
            for seq_id, sequence in self._sequences.items()
        )

    def _order(self, seq_id: SeqId, parent_id: SeqId) -> None:
        """Take a slot for the fork. Raises AiciError if there is none."""
        parent = self._sequences[parent_id]
        assert parent.worker is not None
        fork = GuestSequence(parent.req_id, None, masks_in_pre=parent.masks_in_pre)
        if parent.worker.pool is not None:
            self._sequences.wait_for_pool(parent.worker.pool)
            fork.worker = self._pools.clone(parent.worker, parent.worker.pool, seq_id)
            self._sequences.add(seq_id, fork)
            return
        owner = self._table.owner(parent.worker.slot)
        slot = self._table.take(self._table.fork_half, owner)
        self._sequences.add(seq_id, fork)
        order = self._orders.get(parent_id)
        if order is None:
            order = self._orders[parent_id] = ForkOrder(parent_id, owner)
            self._queue.add(order)
        order.waiting.append((seq_id, slot))
        self._orders[seq_id] = order

    def _begin(self, order: ForkOrder) -> None:
        """Ask the parent's worker for the begun forks."""
        parent = self._sequences[order.parent_id]
        order.until = time.monotonic() + _FORK_S
        for number, (_, slot) in enumerate(order.begun):
            if parent.worker is None or parent.worker.dead or not self._supervisor.hand_over(parent.worker, slot):
                order.begin_no_more(number)
                self._sequences.fail(parent, "Worker: died")
                return
        forks = [(seq_id, slot.index) for seq_id, slot in order.begun if seq_id is not None]
        self._sequences.send([(order.parent_id, worker_requests.fork(forks))])

    def _hear(self, order: ForkOrder, deadline: float, sent: list[SeqId]) -> bool:
        """Wait for the parent's answer. Return False if `deadline` has passed before."""
        parent = self._sequences[order.parent_id]
        answer = b"" if parent.worker is None else parent.worker.wait_response(min(deadline, order.until))
        if answer is None and time.monotonic() < order.until:
            return False
        if not answer or parent.worker is None:
            reason = "timeout" if answer is None else "died"
            if parent.worker is not None:
                self._sequences.fail(parent, f"Worker: {reason}")
            self._give_up(order, reason)
            return True
        outcomes = _outcomes(answer, len(order.begun))
        if outcomes is None:
            self._sequences.fail(parent, NO_ANSWER)
            self._give_up(order, "the answer of the worker cannot be read")
            return True
        made = [self._adopt(parent.worker, *fork, outcome) for fork, outcome in zip(order.begun, outcomes, strict=True)]
        ready = [seq_id for seq_id in made if seq_id is not None]
        if self._queue.end_part(order):
            ready.append(order.parent_id)
        for seq_id in ready:
            del self._orders[seq_id]
            if self._send_held(seq_id):
                sent.append(seq_id)
        return True

    def _adopt(self, parent: WorkerHandle, seq_id: SeqId | None, slot: WorkerSlot, outcome: int | str) -> SeqId | None:
        """Return the id of a fork, to be asked; None if there is no fork, or nobody wants it any more."""
        if isinstance(outcome, str):
            self._table.free(slot)
        else:
            worker = self._supervisor.adopt_fork(slot, outcome, parent)
            if seq_id is None:
                self._supervisor.release(worker)
        if seq_id is None:
            return None
        sequence = self._sequences[seq_id]
        if isinstance(outcome, str):
            self._fail(seq_id, outcome)
            return None
        sequence.worker = worker
        return seq_id

    def _send_held(self, seq_id: SeqId) -> bool:
        """Send a sequence its request. Return whether the sequence was not late before."""
        sequence = self._sequences[seq_id]
        request = self._held.pop(seq_id, None)
        if request is None:
            return False
        if sequence.late is None:
            return bool(self._sequences.send([(seq_id, request)]))
        sequence.late = Lateness(time.monotonic())
        self._sequences.send([(seq_id, request)], {seq_id})
        return False

    def _give_up(self, order: ForkOrder, reason: str) -> None:
        """The parent forks no more."""
        self._queue.remove(order)
        for _, slot in order.begun:
            self._supervisor.abandon(slot)
        for _, slot in order.waiting:
            self._table.free(slot)
        for seq_id in order.seq_ids():
            self._fail(seq_id, reason)
        del self._orders[order.parent_id]
        self._held.pop(order.parent_id, None)

    def _fail(self, seq_id: SeqId, reason: str) -> None:
        del self._orders[seq_id]
        self._held.pop(seq_id, None)
        sequence = self._sequences[seq_id]
        sequence.req_id = ""
        self._sequences.fail(sequence, f"Worker: {reason}")


def _outcomes(answer: bytes, count: int) -> list[int | str] | None:
    """Return the pid of each fork, or the reason why there is none. None for an answer that says something else."""
    try:
        outcomes = orjson.loads(answer)
    except ValueError:
        return None
    if type(outcomes) is not list or len(outcomes) != count:
        return None
    if not all(type(outcome) is str or (type(outcome) is int and outcome > 0) for outcome in outcomes):
        return None
    return outcomes
