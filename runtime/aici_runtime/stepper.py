"""The main channel: synchronous with the engine's steps, one thread, nothing slow.

Sequences live here. A sequence whose worker has failed (died, or was killed for its time) stays, and says so in every
response, until the engine frees it: one bad guest never fails the command for the others.
"""

import logging
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from aici_runtime import envelope
from aici_runtime.callbacks import encode_result
from aici_runtime.channel import Mailbox, MessageTooLargeError
from aici_runtime.envelope import Request, RequestError
from aici_runtime.errors import AiciError
from aici_runtime.flags import Limits
from aici_runtime.ids import SeqId
from aici_runtime.masks import MaskRegion
from aici_runtime.requests import parse_mid, parse_post_pre
from aici_runtime.roster import Roster, WorkerHandle
from aici_runtime.slots import REQUEST_MAX, SlotTable
from aici_runtime.vocabulary import LoadedVocabulary
from aici_runtime.wire import MidOp
from aici_runtime.worker import split_post_pre

GRACE_S = 0.2
"""On top of every limit, as the original has it: the limit is the guest's, this is for a busy machine."""

_KILL_GRACE_S = 0.1
"""Between interrupting a guest and killing its process."""

_FORK_S = 5.0
"""A fork takes 3 ms; but giving up on one kills the parent, and a machine can be very busy."""

_log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class _Sequence:
    """`failure`: why its worker is no more; empty while it lives."""

    req_id: str
    worker: WorkerHandle | None
    failure: str = ""


class Stepper:
    def __init__(
        self, *, table: SlotTable, roster: Roster, masks: MaskRegion, vocabulary: LoadedVocabulary, limits: Limits
    ) -> None:
        self._table = table
        self._roster = roster
        self._masks = masks
        self._vocabulary = vocabulary
        self._limits = limits
        self._sequences: dict[SeqId, _Sequence] = {}

    def serve(self, requests: Mailbox, responses: Mailbox, busy_wait_ms: int) -> None:
        """Until `stop`, which has no response."""
        while True:
            response = self.answer(requests.receive(busy_wait_ms))
            if response is None:
                return
            try:
                responses.send(response)
            except MessageTooLargeError as error:
                responses.send(envelope.failure(None, str(error), is_user_error=False))

    def answer(self, message: bytes) -> bytes | None:
        try:
            request = envelope.parse(message)
        except envelope.BadMessageError as error:
            return envelope.json_error(str(error))
        if request.op == "stop":
            return None
        try:
            return envelope.answer(request, self._run)
        except Exception as error:  # noqa: BLE001  a bug; the engine must get its answer all the same
            _log.exception("request failed")
            return envelope.failure(request.rid, f"internal error: {error!r}", is_user_error=False)

    def _run(self, request: Request) -> bytes:
        if request.op == "post_pre_process":
            return self._post_pre(request.body)
        if request.op == "mid_process":
            return self._mid(request.body)
        if request.op == "tokens":
            return orjson.dumps({"vocab_size": self._vocabulary.vocab_size, "eos_token_id": self._vocabulary.eos_token})
        if request.op == "ping":
            return b'{"pong":1}'
        raise RequestError("bad op")

    def _post_pre(self, body: dict[str, Any]) -> bytes:
        command = parse_post_pre(body)
        for seq_id in command.post_ops:
            if seq_id not in self._sequences:
                raise RequestError(f"invalid id {seq_id}")
        for seq_id in command.pre_ops:
            if seq_id in self._sequences:
                raise RequestError(f"duplicate id {seq_id}")
        workers = self._roster.bind([op.req_id for op in command.pre_ops.values()])
        for op, worker in zip(command.pre_ops.values(), workers, strict=True):
            self._sequences[op.id] = _Sequence(op.req_id, worker)
        requests = {}
        for seq_id in self._sequences:
            post_op = command.post_ops.get(seq_id)
            post = None if post_op is None else {"tokens": post_op.tokens, "backtrack": post_op.backtrack}
            requests[seq_id] = {"op": "pp", "id": seq_id, "post": post}
        answers = self._ask(requests, self._limits.pre_step_s)
        pre, post_results = [], []
        for seq_id, answer in answers.items():
            after, before = split_post_pre(answer) if answer is not None else (self._failed(seq_id),) * 2
            pre.append(b'"%d":%b' % (seq_id, before))
            if seq_id in command.post_ops:
                post_results.append(b'"%d":%b' % (seq_id, after))
        self._free(command.freed)
        return b'{"post_seqs":{%b},"pre_seqs":{%b}}' % (b",".join(post_results), b",".join(pre))

    def _mid(self, body: dict[str, Any]) -> bytes:
        ops = parse_mid(body)
        for op in ops:
            if op.clone_id is None and op.id not in self._sequences:
                raise RequestError(f"invalid id {op.id}")
        if not self._masks.check_rows(len(ops)):
            raise RequestError("shm size too small")
        self._masks.clear(len(ops))
        refused = {op.id: self._clone(op.id, op.clone_id) for op in ops if op.clone_id is not None}
        groups = _fork_groups(ops)
        requests: dict[SeqId, dict[str, object]] = {
            op.id: {"op": "mid", "row": row, "fork_group": groups[op.id]}
            for row, op in enumerate(ops)
            if not refused.get(op.id)
        }
        answers = self._ask(requests, self._limits.step_limit_s("doc"))
        results = []
        for op in ops:
            answer = answers.get(op.id)
            reason = refused.get(op.id)
            result = answer or (_worker_error(reason) if reason else self._failed(op.id))
            results.append(b'"%d":%b' % (op.id, result))
        return b'{"seqs":{%b},"num_seqs":%d}' % (b",".join(results), len(ops))

    def _ask(self, requests: Mapping[SeqId, Mapping[str, object]], limit_s: float) -> dict[SeqId, bytes | None]:
        """Ask many workers at once, under one deadline. None for those that failed, which are released."""
        asked: dict[SeqId, WorkerHandle] = {}
        for seq_id, request in requests.items():
            sequence = self._sequences[seq_id]
            if sequence.worker is not None and self._send(sequence, request):
                asked[seq_id] = sequence.worker
        answers: dict[SeqId, bytes | None] = dict.fromkeys(requests)
        late = self._collect(asked, answers, time.monotonic() + limit_s + GRACE_S)
        for worker in late.values():
            self._roster.interrupt(worker)
        for seq_id in self._collect(late, answers, time.monotonic() + _KILL_GRACE_S):
            self._fail(self._sequences[seq_id], "Worker: timeout")
        return answers

    def _collect(
        self, asked: Mapping[SeqId, WorkerHandle], answers: dict[SeqId, bytes | None], deadline: float
    ) -> dict[SeqId, WorkerHandle]:
        """Fill in what arrives before `deadline`; returns those that have not answered."""
        late = {}
        for seq_id, worker in asked.items():
            answer = worker.slot.wait_response(deadline)
            if answer is None:
                late[seq_id] = worker
            elif answer:
                answers[seq_id] = answer
            else:
                self._fail(self._sequences[seq_id], "Worker: died")
        return late

    def _send(self, sequence: _Sequence, request: Mapping[str, object]) -> bool:
        message = orjson.dumps(request)
        worker = sequence.worker
        if worker is None:
            return False
        if len(message) > REQUEST_MAX:
            self._fail(sequence, f"Worker: request too large; {len(message)} > {REQUEST_MAX}")
            return False
        worker.slot.send_request(message)
        if worker.dead:
            # The roster may have said so before the request cleared the word.
            worker.slot.mark_dead()
        return True

    def _clone(self, seq_id: SeqId, parent_id: SeqId) -> str:
        """Fork the parent's worker for `seq_id`. Returns why not; such a sequence exists too, as failed."""
        if seq_id in self._sequences:
            return f"duplicate id {seq_id} (cloning {parent_id})"
        parent = self._sequences.get(parent_id)
        if parent is None or parent.worker is None:
            reason = f"invalid id {parent_id}" if parent is None else f"cannot clone {parent_id}: {parent.failure}"
        elif self._num_forks(parent.req_id) >= self._limits.forks:
            reason = f"too many forks (max={self._limits.forks})"
        else:
            try:
                self._sequences[seq_id] = _Sequence(parent.req_id, self._fork(parent, parent.worker, seq_id))
                return ""
            except (AiciError, _ForkError) as error:
                reason = str(error)
        self._sequences[seq_id] = _Sequence("", None, f"Worker: {reason}")
        return reason

    def _fork(self, parent: _Sequence, worker: WorkerHandle, seq_id: SeqId) -> WorkerHandle:
        if worker.dead:
            self._fail(parent, "Worker: died")
            raise _ForkError("died")
        slot = self._table.take(self._table.branches)
        self._send(parent, {"op": "fork", "id": seq_id, "slot": slot.index})
        deadline = time.monotonic() + _FORK_S
        answer = worker.slot.wait_response(deadline)
        if not answer:
            # The slot stays taken: nobody knows whether a branch will still come up in it.
            self._fail(parent, "Worker: timeout" if answer is None else "Worker: died")
            raise _ForkError(parent.failure.removeprefix("Worker: "))
        if not answer.isdigit():
            slot.free()
            raise _ForkError(answer.decode())
        branch = self._roster.adopt_branch(slot, int(answer))
        if slot.wait_response(deadline) != b"ok":
            self._roster.release(branch)
            raise _ForkError("the branch did not start")
        return branch

    def _num_forks(self, req_id: str) -> int:
        return sum(seq.req_id == req_id and seq.worker is not None for seq in self._sequences.values())

    def _fail(self, sequence: _Sequence, failure: str) -> None:
        if sequence.worker is not None:
            self._roster.release(sequence.worker)
        sequence.worker = None
        sequence.failure = failure

    def _failed(self, seq_id: SeqId) -> bytes:
        failure = self._sequences[seq_id].failure
        return encode_result(result=None, error=failure, storage=[], logs=failure, micros=0)

    def _free(self, freed: Iterable[SeqId]) -> None:
        for seq_id in freed:
            sequence = self._sequences.pop(seq_id, None)
            if sequence is not None and sequence.worker is not None:
                self._roster.release(sequence.worker)


class _ForkError(Exception):
    pass


def _worker_error(reason: str) -> bytes:
    return encode_result(result=None, error=f"Worker: {reason}", storage=[], logs=f"Worker: {reason}", micros=0)


def _fork_groups(ops: Iterable[MidOp]) -> dict[SeqId, list[SeqId]]:
    """Ids that have the same parent, or are it, in the order of `ops`."""
    groups: dict[SeqId, list[SeqId]] = {}
    for op in ops:
        groups.setdefault(op.id if op.clone_id is None else op.clone_id, []).append(op.id)
    return {seq_id: group for group in groups.values() for seq_id in group}
