"""The sequences of an engine and the workers behind them.

The worker of a sequence may die, or be killed after a timeout. The failed sequence stays until the engine frees the
sequence, and every response repeats the failure. A bad guest never fails a command for other sequences.
"""

import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from aici_base.ids import SeqId
from aici_runtime.channels.envelope import RequestError
from aici_runtime.flags import Limits
from aici_runtime.guests.driver import encode_result
from aici_runtime.memory.worker_slots import REQUEST_MAX, WorkerSlotTable
from aici_runtime.supervision.pools import GuestPools
from aici_runtime.supervision.worker_handle import WorkerHandle
from aici_runtime.supervision.worker_supervisor import WorkerSupervisor
from aici_runtime.workers import worker_requests
from aici_runtime.workers.worker_replies import WorkerReply

_KILL_GRACE_S = 0.1
"""Time between the interruption of a guest and the end of the process."""

_POOL_KILL_GRACE_S = 2.0
"""The same in a pool, counted from the last reply: its end takes all guests along, and a machine can be very busy."""

_LATE_KILL_GRACE_S = 1.0
"""The same for a worker of low priority, for which nobody waits."""

_CPU_EVERY_S = 1.0

_STOPPED = "Worker: stopped; a signal has stopped the process of the guest"
"""In place of the text of a timeout, which would blame the guest."""


@dataclass(slots=True)
class Lateness:
    """`since`: from when a worker is late with the reply (time.monotonic()). `rounds`: the number of steps in which the
    engine was told so. `row`: the mask row still open to the worker, -1 for no row. `interrupted_at`: when the guest
    was interrupted, None before."""

    since: float
    rounds: int = 0
    row: int = -1
    interrupted_at: float | None = None


@dataclass(slots=True, eq=False)
class GuestSequence:
    """`failure`: the reason why the worker has ended, empty while the worker lives. `held_reply`: a mid reply that
    arrived late and waits for the next mid. `latest_op`: the operation of the latest request. `masks_in_pre`: the guest
    computes its mask in the pre phase. `cpu_s`: processor time of the worker when it was last read; `told_cpu_s` of it
    is in an answer."""

    req_id: str
    worker: WorkerHandle | None
    failure: str = ""
    late: Lateness | None = None
    held_reply: WorkerReply | None = None
    latest_op: int = worker_requests.PRE
    masks_in_pre: bool = False
    cpu_s: float = 0.0
    told_cpu_s: float = 0.0

    def read_cpu(self) -> None:
        """Note the processor time that the worker has used so far."""
        if self.worker is not None and (cpu_s := self.worker.cpu_s()) is not None:
            self.cpu_s = cpu_s

    def take_cpu_us(self) -> int:
        """Return the microseconds of processor time since the last call."""
        used_s, self.told_cpu_s = self.cpu_s - self.told_cpu_s, self.cpu_s
        return int(used_s * 1e6)

    @property
    def pooled(self) -> bool:
        """Whether the guest lives in a pool."""
        return self.worker is not None and self.worker.pool is not None

    def mid_started(self) -> float | None:
        """Return the start of a turn's mid phase (time.monotonic()), or None before the start."""
        return None if self.worker is None else self.worker.slot.mid_started()


class GuestSequences:
    """The live and failed sequences by id. `send` starts many workers at once; `collect` reads replies up to a
    deadline."""

    def __init__(
        self, *, table: WorkerSlotTable, supervisor: WorkerSupervisor, pools: GuestPools, limits: Limits
    ) -> None:
        self._table = table
        self._supervisor = supervisor
        self._pools = pools
        self._limits = limits
        self._by_id: dict[SeqId, GuestSequence] = {}
        self._cpu_of_gone: dict[SeqId, int] = {}
        self._cpu_told_at = 0.0
        self.version = 0
        """Changes whenever a sequence comes, goes, or gets or loses its worker."""

    def __contains__(self, seq_id: SeqId) -> bool:
        return seq_id in self._by_id

    def __getitem__(self, seq_id: SeqId) -> GuestSequence:
        return self._by_id[seq_id]

    def get(self, seq_id: SeqId) -> GuestSequence | None:
        """Return a sequence, or None if there is none."""
        return self._by_id.get(seq_id)

    def items(self) -> Iterator[tuple[SeqId, GuestSequence]]:
        """Iterate over ids and sequences."""
        return iter(self._by_id.items())

    def bind(self, req_ids: Mapping[SeqId, str]) -> None:
        """Bind waiting guests to fresh sequence ids. Binds all, or raises RequestError and binds none."""
        if not req_ids:
            return
        for seq_id in req_ids:
            if seq_id in self._by_id:
                raise RequestError(f"duplicate id {seq_id}")
        workers = self._supervisor.bind(list(req_ids.values()))
        for (seq_id, req_id), worker in zip(req_ids.items(), workers, strict=True):
            self._by_id[seq_id] = GuestSequence(req_id, worker, masks_in_pre=worker.slot.computes_mask_in_pre())
            self.version += 1

    def keep_to(self, cores: frozenset[int]) -> None:
        """Let all guests run on these cores alone."""
        for sequence in self._by_id.values():
            if sequence.worker is not None:
                sequence.worker.keep_to(cores)

    def send(self, requests: Iterable[tuple[SeqId, bytes]], detached: Collection[SeqId] = ()) -> list[SeqId]:
        """Send requests and return the ids of the sequences at work; the remaining sequences have failed.

        The first worker starts while the iterator `requests` still produces the next request. The masks of `detached`
        travel in the replies (see `detach`).
        """
        sent = [
            seq_id
            for seq_id, request in requests
            if self._send(self._by_id[seq_id], request, detached=seq_id in detached)
        ]
        self.ring(self._by_id[seq_id].worker for seq_id in sent)
        return sent

    def ring(self, workers: Iterable[WorkerHandle | None]) -> None:
        """Wake the pools of these workers, after requests were sent."""
        self._pools.ring(workers)

    def collect(self, seq_ids: list[SeqId], deadline: float) -> tuple[dict[SeqId, bytes], list[SeqId]]:
        """Return the replies, and the ids without a reply by `deadline`. Both leave out the sequences of dead
        workers."""
        answers, missing = {}, []
        # Wait for the last worker first: by then most workers have replied. Waiting in order would sleep and wake for
        # every reply.
        for seq_id in reversed(seq_ids):
            sequence = self._by_id[seq_id]
            if sequence.worker is None:
                continue
            answer = sequence.worker.wait_response(deadline)
            if answer is None:
                missing.append(seq_id)
            elif answer:
                answers[seq_id] = answer
            else:
                self.fail(sequence, "Worker: died")
        return answers, missing

    def give_up(self, seq_ids: list[SeqId]) -> dict[SeqId, bytes]:
        """Interrupt the guests of these sequences and return the replies. Kill a worker without a reply."""
        answers: dict[SeqId, bytes] = {}
        missing, num_before, silent_since = seq_ids, len(seq_ids), time.monotonic()
        while missing and time.monotonic() - silent_since < self._kill_grace_s(missing):
            for seq_id in missing:  # again: in a pool, the next guest starts when the one before is interrupted
                worker = self._by_id[seq_id].worker
                if worker is not None:
                    self._supervisor.interrupt(worker)
            more, missing = self.collect(missing, time.monotonic() + _KILL_GRACE_S)
            answers |= more
            if len(missing) < num_before:
                num_before, silent_since = len(missing), time.monotonic()
        for seq_id in missing:
            self._fail_timeout(self._by_id[seq_id])
        return answers

    def _kill_grace_s(self, seq_ids: list[SeqId]) -> float:
        workers = (self._by_id[seq_id].worker for seq_id in seq_ids)
        is_pooled = any(worker is not None and worker.pool is not None for worker in workers)
        return _POOL_KILL_GRACE_S if is_pooled else _KILL_GRACE_S

    def end_without_wait(self, seq_ids: list[SeqId]) -> None:
        """Interrupt late guests, as `give_up`, but leave the replies to a later `collect`. Kill a worker without a
        reply after a while."""
        now = time.monotonic()
        for seq_id in seq_ids:
            sequence = self._by_id[seq_id]
            if sequence.late is None or sequence.worker is None:
                continue
            if sequence.late.interrupted_at is None or sequence.pooled:  # again: the pool may have begun only now
                self._supervisor.interrupt(sequence.worker)
            sequence.late.interrupted_at = sequence.late.interrupted_at or now
            grace_s = _POOL_KILL_GRACE_S if sequence.pooled else _LATE_KILL_GRACE_S
            if now - sequence.late.interrupted_at > grace_s:
                self._fail_timeout(sequence)

    def lower(self, seq_id: SeqId) -> None:
        """Let the worker of a late guest compute with what others leave."""
        worker = self._by_id[seq_id].worker
        if worker is not None:
            worker.lower()

    def _fail_timeout(self, sequence: GuestSequence) -> None:
        was_stopped = sequence.worker is not None and sequence.worker.is_stopped()
        if sequence.worker is not None and sequence.worker.pool is not None:
            self._supervisor.release(
                sequence.worker.pool
                # A pool stuck in a guest would never serve the other guests.
            )
        in_mid = sequence.latest_op in (worker_requests.MID, worker_requests.STEP) or sequence.mid_started() is not None
        op = "mid" if sequence.masks_in_pre or in_mid else "pre"
        self.fail(sequence, _STOPPED if was_stopped else self._limits.timeout_text(op, self._table.protocol))

    def detach(self, seq_id: SeqId, deadline: float) -> None:
        """Close the mask row to the worker; a later reply carries the mask.

        A worker in the middle of writing the row has until `deadline` to finish; then the process is killed.
        """
        sequence = self._by_id[seq_id]
        if sequence.worker is not None and not sequence.worker.slot.detach(deadline):
            self._fail_timeout(sequence)

    def add(self, seq_id: SeqId, sequence: GuestSequence) -> None:
        """Add a fork under a fresh id."""
        self.version += 1
        self._by_id[seq_id] = sequence

    def fail(self, sequence: GuestSequence, failure: str) -> None:
        """Release the worker and let every response repeat the failure."""
        if sequence.worker is not None:
            sequence.read_cpu()
            self._supervisor.release(sequence.worker)
        self.version += 1
        sequence.worker = None
        sequence.late = sequence.held_reply = None
        sequence.failure = failure

    def free(self, freed: Iterable[SeqId]) -> list[GuestSequence]:
        """Release the sequences of `freed` and return the known ones among them."""
        self.version += 1
        gone = {seq_id: self._by_id.pop(seq_id) for seq_id in dict.fromkeys(freed) if seq_id in self._by_id}
        for seq_id, sequence in gone.items():
            sequence.read_cpu()
            if used_us := sequence.take_cpu_us():
                self._cpu_of_gone[seq_id] = used_us
            if sequence.worker is not None:
                self._supervisor.release(sequence.worker)
        return list(gone.values())

    def take_cpu_us(self) -> dict[SeqId, int]:
        """Return the microseconds of processor time that were not told yet: of ended sequences, and once a second of
        all."""
        used, self._cpu_of_gone = self._cpu_of_gone, {}
        now = time.monotonic()
        if now - self._cpu_told_at >= _CPU_EVERY_S:
            self._cpu_told_at = now
            for seq_id, sequence in self._by_id.items():
                sequence.read_cpu()
                if used_us := sequence.take_cpu_us():
                    used[seq_id] = used_us
        return used

    def cpu_due(self) -> float:
        """Return when `take_cpu_us` has something to tell (time.monotonic())."""
        return 0.0 if self._cpu_of_gone else self._cpu_told_at + _CPU_EVERY_S

    def _send(self, sequence: GuestSequence, request: bytes, *, detached: bool = False) -> bool:
        worker = sequence.worker
        if worker is None:
            return False
        if worker.is_lowered and not detached:
            worker.restore()
        if len(request) > REQUEST_MAX:
            self.fail(sequence, f"Worker: request too large; {len(request)} > {REQUEST_MAX}")
            return False
        sequence.latest_op = request[0]
        worker.send_request(request, detached=detached)
        return True

    def wait_for_pool(self, pool: WorkerHandle) -> None:
        """Wait for the replies of a pool's late guests, which must come before the pool forks. Give up overdue
        guests."""
        proto = self._table.protocol
        patience_s = self._limits.late_rounds(proto) * self._limits.step_limit_s(proto)
        for seq_id in [seq_id for other, seq_id in self._late_in_pools() if other is pool]:
            late = self._by_id[seq_id].late
            _, missing = self.collect([seq_id], patience_s + (late.since if late else 0.0))
            self.give_up(missing)

    def _late_in_pools(self) -> list[tuple[WorkerHandle, SeqId]]:
        workers = [(seq_id, sequence.worker) for seq_id, sequence in self._by_id.items() if sequence.late is not None]
        return [(worker.pool, seq_id) for seq_id, worker in workers if worker is not None and worker.pool is not None]


def failed(reason: str) -> bytes:
    """Return the result of a sequence without a worker to report the failure."""
    return encode_result(result=None, error=reason, storage=[], logs=reason, micros=0)
