"""Protocol v1: `post_pre_process` before the engine schedules a step, `mid_process` while the device computes.

`turn_process` is an extension. The command names the sequences for post and pre, and the sequences for mid; a sequence
may be in both lists. The guest of such a sequence computes the mask in the same turn of the worker if post and pre say
nothing but to go on. Otherwise mid does not run, because the engine has to act on the answer first.

By default a late guest is killed after the limit and a grace period, as in upstream AICI. With
`--wasm-max-timeout-steps` the runtime waits for the guest and reports the sequence as suspended. If a mask was due, the
result of mid is a splice: remove the sampled token, append nothing. So nothing happens to the sequence in the step, and
any engine understands the answer.
"""

import math
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

import orjson

from aici_base.ids import SeqId
from aici_runtime.channels.envelope import RequestError
from aici_runtime.channels.mailbox import Mailbox
from aici_runtime.flags import Limits
from aici_runtime.guests.driver import CONTINUE, encode_result
from aici_runtime.memory.mask_region import MaskRegion
from aici_runtime.protocol import calm_loop
from aici_runtime.protocol.calm_turns import CalmTurns
from aici_runtime.protocol.commands import (
    PostPreCommand,
    TurnCommand,
    decode_turn,
    parse_mid,
    parse_post_pre,
    parse_turn,
)
from aici_runtime.protocol.guest_forks import GuestForks
from aici_runtime.protocol.guest_sequences import GuestSequence, GuestSequences, Lateness, failed
from aici_runtime.protocol.worker_results import NO_ANSWER, UNREADABLE, WorkerResults, split_usual
from aici_runtime.turn_message import CalmTurn, TurnRest, decode_calm, encode_answer
from aici_runtime.wire import MidOp, Patience, PostOp
from aici_runtime.workers import worker_replies, worker_requests
from aici_runtime.workers.guest_server import split_post_pre, split_turn

_GRACE_S = 0.2
"""Grace on top of every limit, as in upstream AICI: the limit is for the guest, the grace for a busy machine."""

_NO_STOP: dict[str, object] = {"stop": False}
_LATE: dict[str, object] = CONTINUE | {"suspend": True, "late": True}
"""The pre result of a late guest. The field `late` is an extension for our engine: it distinguishes waiting from a
deadlock, and such a step costs no fuel."""
_NOTHING: dict[str, object] = {"ff_tokens": [], "backtrack": 1, "late": True}

_Results = list[bytes | None]
"""The results of mid by row, None without a result."""


class V1Ops:
    """The commands of protocol v1, and `turn_process`."""

    def __init__(self, sequences: GuestSequences, forks: GuestForks, masks: MaskRegion, limits: Limits) -> None:
        self._sequences = sequences
        self._forks = forks
        self._masks = masks
        self._calm = CalmTurns(sequences, masks)
        self._loop: calm_loop.CalmLoop | None = None
        self._begun_at: float | None = None
        """When the loop in C has sent the requests of the next message (time.monotonic()); None if it has not."""
        self._results = WorkerResults(masks.bits.vocab_size)
        self._step_s = limits.step_limit_s("v1")
        self._patience_s = limits.late_rounds("v1") * self._step_s
        grace = 0.0 if self._patience_s else _GRACE_S
        self._pre_limit_s = limits.pre_step_s + grace
        self._mid_limit_s = self._step_s + grace
        self._least_limit_s = min(self._pre_limit_s, self._mid_limit_s)

    def serve_calm(self, requests: Mailbox, responses: Mailbox) -> bool:
        """Serve calm turns in C until a message is for Python. Return False if there is no loop in C."""
        if self._forks:
            return True
        self._loop = self._loop or calm_loop.load(
            requests, responses, self._masks, limit_s=self._least_limit_s, is_patient=self._patience_s > 0
        )
        if self._loop is None:
            return False
        self._begun_at = self._loop.serve(self._sequences)
        return True

    def post_pre(self, body: dict[str, Any]) -> bytes:
        """Run `post_pre_process`. Return `data` of the response, as JSON."""
        command = parse_post_pre(body)
        self._begin(command, command.post_ops)
        post, pre, _ = self._run([seq_id for seq_id, _ in self._sequences.items()], command.post_ops, [])
        self._free(command.freed)
        return b'{"post_seqs":{%b},"pre_seqs":{%b}}' % (post, pre)

    def mid(self, body: dict[str, Any]) -> bytes:
        """Run `mid_process`. Return `data` of the response, as JSON."""
        ops = parse_mid(body)
        self._check_mid(ops, fresh=())
        _, _, results = self._run([], {}, ops)
        return b'{"seqs":{%b},"num_seqs":%d}' % (_entries(ops, results), len(ops))

    def turn(self, body: dict[str, Any]) -> bytes:
        """Run `turn_process`. Return `data` of the response, as JSON."""
        command = parse_turn(body)
        post, pre, results, used = self._turn(command)
        return TurnRest(post, pre, _entries(command.ops, results), used).to_json()

    def turn_message(self, message: bytes) -> bytes:
        """Run `turn_process` in binary form. Return the response."""
        calm = None if self._forks else decode_calm(message)
        begun_at, self._begun_at = self._begun_at, None
        if calm is not None and begun_at is not None:
            return self._read_again(message, calm, self._calm.took_over(calm), begun_at)
        if calm is not None and self._calm.begin(calm):
            return self._finish_calm(message, calm)
        command = decode_turn(message)
        return self._encoded(command.ops, *self._turn(command))

    def _finish_calm(self, message: bytes, turn: CalmTurn) -> bytes:
        """Wait for the replies of a calm turn. If a reply is late or not usual, all replies are read again."""
        started = time.monotonic()
        # A runtime without patience kills late guests, so it must not be hurried.
        most_s = turn.most_s if self._patience_s and turn.most_s is not None else math.inf
        results = self._calm.finish(started + min(most_s, self._least_limit_s))
        if results is not None:
            self._free(turn.freed)
            used = self._take_cpu()
            return encode_answer(results, TurnRest(cpu_us=used) if used else None)
        return self._read_again(message, turn, turn.ids, started)

    def _read_again(self, message: bytes, turn: CalmTurn, ids: list[SeqId], started: float) -> bytes:
        """Read the replies of `ids`, the sequences of a calm turn, of which one is late or not usual. `started`: when
        the guests had their requests."""
        command = decode_turn(message)
        patience = command.patience if self._patience_s else None
        got = self._collect(ids, started, patience)
        answer = self._results_of(command.asked, command.post_pre.post_ops, command.ops, {}, got)
        self._free(turn.freed)
        return self._encoded(command.ops, *answer, self._take_cpu())

    def _encoded(self, ops: list[MidOp], post: bytes, pre: bytes, results: _Results, used: bytes) -> bytes:
        micros, others = split_usual(results)
        rest = TurnRest(post, pre, _entries(ops, others), used)
        return encode_answer(micros, rest if any(rest) else None)

    def _take_cpu(self) -> bytes:
        used = self._sequences.take_cpu_us()
        return b",".join(b'"%d":%d' % pair for pair in used.items()) if used else b""

    def _turn(self, command: TurnCommand) -> tuple[bytes, bytes, _Results, bytes]:
        """Return the entries of post and pre, the results of mid, and the entries of the processor times."""
        post_pre = command.post_pre
        self._check_mid(command.ops, fresh=post_pre.pre_ops)
        self._begin(post_pre, command.asked)
        # A runtime without patience kills late guests, so it must not be hurried.
        patience = command.patience if self._patience_s else None
        asked = [*command.asked, *post_pre.pre_ops] if post_pre.pre_ops else command.asked
        post, pre, results = self._run(asked, post_pre.post_ops, command.ops, patience)
        self._free(post_pre.freed)
        return post, pre, results, self._take_cpu()

    def _begin(self, command: PostPreCommand, known: Iterable[SeqId]) -> None:
        for seq_id in known:
            if seq_id not in self._sequences:
                raise RequestError(f"invalid id {seq_id}")
        self._sequences.bind({seq_id: op.req_id for seq_id, op in command.pre_ops.items()})

    def _check_mid(self, ops: list[MidOp], *, fresh: Collection[SeqId]) -> None:
        for op in ops:
            if op.clone_id is None and op.id not in self._sequences and op.id not in fresh:
                raise RequestError(f"invalid id {op.id}")
        if not self._masks.fits_rows(len(ops)):
            raise RequestError("shm size too small")

    def _run(
        self,
        asked: list[SeqId],
        post_ops: Mapping[SeqId, PostOp],
        ops: list[MidOp],
        patience: Patience | None = None,
    ) -> tuple[bytes, bytes, _Results]:
        """Run post and pre for `asked` and mid for `ops`. Return the entries of post and pre, and the results of
        mid."""
        refused = {op.id: self._forks.clone(op.id, op.clone_id) for op in ops if op.clone_id is not None}
        late = [seq_id for seq_id in asked if self._sequences[seq_id].late is not None]
        rows = {op.id: row for row, op in enumerate(ops) if not refused.get(op.id)}
        hurried = patience.hurried if patience else ()
        at_work = self._sequences.send(self._forks.hold(self._requests(asked, post_ops, ops, rows)), hurried)
        started = time.monotonic()  # from now: a delay up to here must not cost the guests any time
        if patience is None:
            at_work += self._forks.advance(math.inf)
            started = time.monotonic()
        else:  # forks cost nobody anything while a forward pass computes
            at_work += self._forks.advance(started + patience.hurried_s, beside_others=True)
            self._forks.mark_late(started)
        waiting = [seq_id for seq_id in late if seq_id not in self._forks]
        in_time = [seq_id for seq_id in at_work if seq_id not in hurried] if hurried else at_work
        got = self._collect(in_time, started, patience)
        if patience is not None:
            got |= self._collect_hurried([s for s in at_work if s in hurried], started, patience.hurried_s)
            got |= self._collect_late_without_wait(waiting)
        elif waiting:
            # A late guest gets as much time as the other guests; alone, the guest gets the time of a step, so that no
            # engine spins.
            got |= self._collect_late(waiting, started if got else started + self._pre_limit_s)
        for seq_id in late:
            self._refuse_tokens_while_late(self._sequences[seq_id], post_ops.get(seq_id))
        return self._results_of(asked, post_ops, ops, refused, got)

    def _results_of(
        self,
        asked: list[SeqId],
        post_ops: Mapping[SeqId, PostOp],
        ops: list[MidOp],
        refused: Mapping[SeqId, str],
        got: dict[SeqId, bytes],
    ) -> tuple[bytes, bytes, _Results]:
        """Read the replies `got`. Return the same as `_run`."""
        pre, post = [], []
        results: _Results = [None] * len(ops)
        asked_ids = set(asked)
        for seq_id in asked:
            after, before = self._read_post_pre(self._sequences[seq_id], got.pop(seq_id, None))
            if before:
                pre.append(b'"%d":%b' % (seq_id, before))
            if after and seq_id in post_ops:
                post.append(b'"%d":%b' % (seq_id, after))
        for row, op in enumerate(ops):
            reason = refused.get(op.id)
            if reason:
                self._masks.v1_rows.clear(row)
            elif op.id in asked_ids and self._sequences[op.id].held_reply is None:
                continue  # the pre result has the reason
            results[row] = failed(f"Worker: {reason}") if reason else self._read_mid(op.id, row, got.get(op.id))
        return b",".join(post), b",".join(pre), results

    def _free(self, freed: list[SeqId]) -> None:
        if not freed:
            return
        self._forks.drop(freed)
        self._sequences.free(freed)

    def _requests(
        self, asked: list[SeqId], post_ops: Mapping[SeqId, PostOp], ops: list[MidOp], rows: dict[SeqId, int]
    ) -> Iterator[tuple[SeqId, bytes]]:
        """Yield the requests to the workers. Skips sequences that are late or hold an undelivered reply."""
        groups, asked_ids = _fork_groups(ops), set(asked)
        for seq_id in dict.fromkeys([*asked, *rows]):
            sequence, row = self._sequences[seq_id], rows.get(seq_id)
            if sequence.late is not None or sequence.held_reply is not None:
                continue
            if seq_id not in asked_ids:
                yield seq_id, worker_requests.mid(rows[seq_id], groups[seq_id])
            elif row is None:
                yield seq_id, worker_requests.post_pre(seq_id, post_ops.get(seq_id))
            else:
                yield seq_id, worker_requests.turn(seq_id, post_ops.get(seq_id), row)

    def _collect(self, asked: list[SeqId], started: float, patience: Patience | None) -> dict[SeqId, bytes]:
        """Collect replies under the limit of each operation. The time of mid starts when the last worker has started
        mid."""
        end = math.inf if patience is None else started + patience.most_s
        # Nearly always all replies are there before any limit, and the rest of this method has nothing to do.
        got, asked = self._sequences.collect(asked, min(end, started + self._least_limit_s))
        if not asked:
            return got
        ops = {seq_id: self._sequences[seq_id].latest_op for seq_id in asked}
        # A guest in a pool also waits for the masks of the other guests in its process.
        pooled = (
            [seq_id for seq_id in asked if self._sequences[seq_id].pooled]
            if worker_requests.TURN in ops.values()
            else []
        )
        apart = {*(seq_id for seq_id in asked if ops[seq_id] == worker_requests.MID), *pooled}
        first = [seq_id for seq_id in asked if seq_id not in apart]
        masks_too = any(self._sequences[seq_id].masks_in_pre for seq_id in first)
        limit_s = max(self._pre_limit_s, self._mid_limit_s) if masks_too else self._pre_limit_s
        more, missing = self._sequences.collect(first, min(end, started + limit_s))
        got |= more
        begun = {seq_id: self._sequences[seq_id].mid_started() for seq_id in missing}
        got |= self._handle_late([seq_id for seq_id, at in begun.items() if at is None], started)
        mids = [seq_id for seq_id in asked if seq_id in apart or begun.get(seq_id) is not None]
        last = max([started + limit_s if pooled else started, *(at for at in begun.values() if at is not None)])
        more, late = self._sequences.collect(mids, min(end, last + self._mid_limit_s))
        return got | more | self._handle_late(late, started)

    def _handle_late(self, seq_ids: list[SeqId], started: float) -> dict[SeqId, bytes]:
        """Wait for late guests from now on if the runtime is patient. Otherwise interrupt the guests and return the
        replies."""
        if not self._patience_s:
            return self._sequences.give_up(seq_ids)
        for seq_id in seq_ids:
            if self._sequences[seq_id].latest_op in (worker_requests.MID, worker_requests.TURN):
                self._sequences.detach(seq_id, started + self._patience_s)
        got, late = self._sequences.collect(seq_ids, started)
        for seq_id in late:
            self._sequences[seq_id].late = Lateness(started)
        return got

    def _collect_hurried(self, asked: list[SeqId], started: float, hurried_s: float) -> dict[SeqId, bytes]:
        """Collect the replies of guests that others should not wait for."""
        got, missing = self._sequences.collect(asked, started + hurried_s)
        for seq_id in missing:
            self._sequences.lower(seq_id)
        return got | self._handle_late(missing, started)

    def _collect_late_without_wait(self, waiting: list[SeqId]) -> dict[SeqId, bytes]:
        got, missing = self._sequences.collect(waiting, 0.0)
        self._sequences.end_without_wait([s for s in missing if self._is_overdue(self._sequences[s])])
        return got

    def _collect_late(self, waiting: list[SeqId], deadline: float) -> dict[SeqId, bytes]:
        """Return new replies of late guests. Interrupt the guests that are late for too long."""
        got, missing = self._sequences.collect(waiting, deadline)
        return got | self._sequences.give_up([s for s in missing if self._is_overdue(self._sequences[s])])

    def _is_overdue(self, sequence: GuestSequence) -> bool:
        return sequence.late is not None and time.monotonic() - sequence.late.since > self._patience_s

    def _refuse_tokens_while_late(self, sequence: GuestSequence, op: PostOp | None) -> None:
        if op is not None and (op.tokens or op.backtrack > 1):
            self._sequences.fail(sequence, "Worker: a post op for a sequence that is still computing")

    def _read_post_pre(self, sequence: GuestSequence, message: bytes | None) -> tuple[bytes, bytes]:
        try:
            post, pre = self._post_pre_results(sequence, message)
        except UNREADABLE:
            self._sequences.fail(sequence, NO_ANSWER)
            return (failed(NO_ANSWER),) * 2
        return post and self._results.post(post), pre and self._results.pre(pre)

    def _read_mid(self, seq_id: SeqId, row: int, message: bytes | None) -> bytes:
        try:
            return self._results.mid(self._mid_result(seq_id, row, message))
        except UNREADABLE:
            self._sequences.fail(self._sequences[seq_id], NO_ANSWER)
            return failed(NO_ANSWER)

    def _post_pre_results(self, sequence: GuestSequence, message: bytes | None) -> tuple[bytes, bytes]:
        late = sequence.late
        if sequence.failure:
            return (failed(sequence.failure),) * 2
        if message is None:
            return _result(_NO_STOP), _result(CONTINUE if late is None else _LATE)
        sequence.late = None
        if sequence.latest_op == worker_requests.MID:
            sequence.held_reply = worker_replies.decode(message)
            return _result(_NO_STOP), _result(CONTINUE)
        if sequence.latest_op == worker_requests.TURN:
            message, mask = split_turn(message)
            sequence.held_reply = worker_replies.decode(mask) if mask else None
            if not message:
                return (b"", b"") if late is None else (_result(_NO_STOP), _result(CONTINUE))
        post, pre = split_post_pre(message)
        return (post, pre) if late is None else (_result(_NO_STOP), _joined(post, pre))

    def _mid_result(self, seq_id: SeqId, row: int, answer: bytes | None) -> bytes:
        sequence = self._sequences[seq_id]
        if answer is not None and (result := worker_replies.written_result(answer)):
            self._copy_mask(sequence, row)
            return result
        if answer is not None:
            decoded: worker_replies.WorkerReply | None = worker_replies.decode(answer)
        else:
            decoded, sequence.held_reply = sequence.held_reply, None
        if decoded is None and sequence.late is None:
            self._masks.v1_rows.clear(row)
            return failed(sequence.failure)
        if decoded is None:
            self._masks.v1_rows.write(row, self._masks.bits.everything)
            return _result(_NOTHING)
        if decoded.unwritten:
            self._masks.v1_rows.write(row, decoded.unwritten[0])
        elif decoded.num_masks:
            self._copy_mask(sequence, row)
        else:
            self._masks.v1_rows.clear(row)
        return decoded.result

    def _copy_mask(self, sequence: GuestSequence, row: int) -> None:
        rows = self._masks.v1_rows
        if sequence.worker is not None:
            rows.put(row, sequence.worker.slot.mask(rows.row_bytes))


def _entries(ops: Iterable[MidOp], results: _Results) -> bytes:
    """Return the results as entries of a map in JSON."""
    return b",".join(b'"%d":%b' % (op.id, each) for op, each in zip(ops, results, strict=True) if each is not None)


def _result(result: object) -> bytes:
    return encode_result(result=result, error="", storage=[], logs="", micros=0)


def _joined(post: bytes, pre: bytes) -> bytes:
    """Merge the results of post and pre into a pre result, for use when the time to answer post has passed."""
    if not post:
        return pre
    first, second = orjson.loads(post), orjson.loads(pre)
    stopped = not first["error"] and first["result"]["stop"]
    return encode_result(
        result=CONTINUE | {"num_forks": 0} if stopped else second["result"],
        error=first["error"] or second["error"],
        storage=first["storage"] + second["storage"],
        logs=first["logs"] + second["logs"],
        micros=first["micros"] + second["micros"],
    )


def _fork_groups(ops: Iterable[MidOp]) -> dict[SeqId, list[SeqId]]:
    """Return the fork group of every sequence: a parent and the forks of the parent, in the order of `ops`."""
    groups: dict[SeqId, list[SeqId]] = {}
    for op in ops:
        groups.setdefault(op.id if op.clone_id is None else op.clone_id, []).append(op.id)
    return {seq_id: group for group in groups.values() for seq_id in group}
