"""The op set of early 2024: `post_pre_process` before a step is scheduled, `mid_process` while the device computes.

A guest that is late is killed after its limit and some grace, as the original does it; or, with
`--wasm-max-timeout-steps`, waited for: it is suspended meanwhile, and the step in which it was asked for a mask is one
in which nothing happens to it. Engines need not know of it: that is a splice of no tokens that takes back
the sampled one.
"""

import time
from collections.abc import Iterable
from typing import Any

import orjson

from aici_runtime.channels.envelope import RequestError
from aici_runtime.flags import Limits
from aici_runtime.guests.callbacks import CONTINUE, encode_result
from aici_runtime.ids import SeqId
from aici_runtime.processes.seat import split_post_pre
from aici_runtime.steps import answers, asks
from aici_runtime.steps.masks import MaskRegion
from aici_runtime.steps.requests import parse_mid, parse_post_pre
from aici_runtime.steps.sequences import Late, Sequence, Sequences, failed
from aici_runtime.wire import MidOp, PostOp

_GRACE_S = 0.2
"""On top of every limit, as the original has it: the limit is the guest's, this is for a busy machine."""

_NO_STOP: dict[str, object] = {"stop": False}
_LATE: dict[str, object] = CONTINUE | {"suspend": True, "late": True}
"""`late` is ours, for our engine: it tells waiting from a deadlock, and costs no fuel."""
_NOTHING: dict[str, object] = {"ff_tokens": [], "backtrack": 1, "late": True}


class DocOps:
    def __init__(self, sequences: Sequences, masks: MaskRegion, limits: Limits) -> None:
        self._sequences = sequences
        self._masks = masks
        self._step_s = limits.step_limit_s("doc")
        self._patience_s = limits.late_rounds("doc") * self._step_s
        grace = 0.0 if self._patience_s else _GRACE_S
        self._pre_limit_s = limits.pre_step_s + grace
        self._mid_limit_s = self._step_s + grace

    def post_pre(self, body: dict[str, Any]) -> bytes:
        command = parse_post_pre(body)
        for seq_id in command.post_ops:
            if seq_id not in self._sequences:
                raise RequestError(f"invalid id {seq_id}")
        self._sequences.bind({seq_id: op.req_id for seq_id, op in command.pre_ops.items()})
        started = time.monotonic()
        waiting = [seq_id for seq_id, seq in self._sequences.items() if seq.late is not None]
        got = self._ask_post_pre(command.post_ops, started)
        # Who was late has the time of the others; if there are no others, a step's, so that the engine does not spin.
        got |= self._look_at(waiting, started if got else started + self._pre_limit_s)
        for seq_id in waiting:
            self._refuse_news(self._sequences[seq_id], command.post_ops.get(seq_id))
        pre, post = [], []
        for seq_id, sequence in self._sequences.items():
            after, before = self._post_pre_results(sequence, got.get(seq_id))
            pre.append(b'"%d":%b' % (seq_id, before))
            if seq_id in command.post_ops:
                post.append(b'"%d":%b' % (seq_id, after))
        self._sequences.free(command.freed)
        return b'{"post_seqs":{%b},"pre_seqs":{%b}}' % (b",".join(post), b",".join(pre))

    def mid(self, body: dict[str, Any]) -> bytes:
        ops = parse_mid(body)
        for op in ops:
            if op.clone_id is None and op.id not in self._sequences:
                raise RequestError(f"invalid id {op.id}")
        if not self._masks.fits_rows(len(ops)):
            raise RequestError("shm size too small")
        refused = {op.id: self._sequences.clone(op.id, op.clone_id) for op in ops if op.clone_id is not None}
        got = self._ask_mid([(row, op) for row, op in enumerate(ops) if not refused.get(op.id)], _fork_groups(ops))
        results = []
        for row, op in enumerate(ops):
            reason = refused.get(op.id)
            if reason:
                self._masks.rows.clear(row)
            result = failed(f"Worker: {reason}") if reason else self._mid_result(op.id, row, got.get(op.id))
            results.append(b'"%d":%b' % (op.id, result))
        return b'{"seqs":{%b},"num_seqs":%d}' % (b",".join(results), len(ops))

    def _ask_post_pre(self, post_ops: dict[SeqId, PostOp], started: float) -> dict[SeqId, bytes]:
        asked = self._sequences.ask(
            (seq_id, asks.post_pre(seq_id, post_ops.get(seq_id)))
            for seq_id, sequence in self._sequences.items()
            if sequence.late is None and sequence.ready is None
        )
        masks_too = any(self._sequences[seq_id].masks_in_pre for seq_id in asked)
        limit_s = max(self._pre_limit_s, self._mid_limit_s) if masks_too else self._pre_limit_s
        got, late = self._sequences.collect(asked, started + limit_s)
        return got | self._late(late, Late("pp", started))

    def _ask_mid(self, ops: list[tuple[int, MidOp]], groups: dict[SeqId, list[SeqId]]) -> dict[SeqId, bytes]:
        """`ops` with their rows."""
        started = time.monotonic()
        asked = self._sequences.ask(
            (op.id, asks.mid(row, groups[op.id if op.clone_id is None else op.clone_id]))
            for row, op in ops
            if (sequence := self._sequences[op.id]).ready is None and sequence.late is None
        )
        got, late = self._sequences.collect(asked, started + self._mid_limit_s)
        if self._patience_s:
            for seq_id in late:
                self._sequences.detach(seq_id)
            more, late = self._sequences.collect(late, started)
            got |= more
        return got | self._late(late, Late("mid", started))

    def _late(self, seq_ids: list[SeqId], late: Late) -> dict[SeqId, bytes]:
        """From now on these are waited for, if that is wanted; else they are given up, with what they say of it."""
        if not self._patience_s:
            return self._sequences.give_up(seq_ids)
        for seq_id in seq_ids:
            self._sequences[seq_id].late = Late(late.op, late.since)
        return {}

    def _look_at(self, waiting: list[SeqId], deadline: float) -> dict[SeqId, bytes]:
        """What has come of those that were late; who is so for too long is given up."""
        got, missing = self._sequences.collect(waiting, deadline)
        return got | self._sequences.give_up([s for s in missing if self._is_overdue(self._sequences[s])])

    def _is_overdue(self, sequence: Sequence) -> bool:
        return sequence.late is not None and time.monotonic() - sequence.late.since > self._patience_s

    def _refuse_news(self, sequence: Sequence, op: PostOp | None) -> None:
        if op is not None and (op.tokens or op.backtrack > 1):
            self._sequences.fail(sequence, "Worker: a post op for a sequence that is still computing")

    def _post_pre_results(self, sequence: Sequence, message: bytes | None) -> tuple[bytes, bytes]:
        late = sequence.late
        if sequence.failure:
            return (failed(sequence.failure),) * 2
        if late is None and message is not None:
            return split_post_pre(message)
        if late is not None and message is None:
            return _result(_NO_STOP), _result(_LATE)
        sequence.late = None
        if late is not None and message is not None:
            if late.op == "pp":
                return _result(_NO_STOP), _joined(*split_post_pre(message))
            sequence.ready = answers.decode(message)
        return _result(_NO_STOP), _result(CONTINUE)

    def _mid_result(self, seq_id: SeqId, row: int, answer: bytes | None) -> bytes:
        if answer is not None and (result := answers.only_result(answer)):
            return result
        sequence = self._sequences[seq_id]
        if answer is not None:
            decoded: answers.Answer | None = answers.decode(answer)
        else:
            decoded, sequence.ready = sequence.ready, None
        if decoded is None and sequence.late is None:
            self._masks.rows.clear(row)
            return failed(sequence.failure)
        if decoded is None:
            self._masks.rows.write(row, self._masks.bits.everything)
            return _result(_NOTHING)
        if decoded.loose:
            self._masks.rows.write(row, decoded.loose[0])
        elif not decoded.num_masks:
            self._masks.rows.clear(row)
        return decoded.result


def _result(result: object) -> bytes:
    return encode_result(result=result, error="", storage=[], logs="", micros=0)


def _joined(post: bytes, pre: bytes) -> bytes:
    """What pre is to say when post can no longer be answered to."""
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
    """By parent: ids that have it, or are it, in the order of `ops`."""
    groups: dict[SeqId, list[SeqId]] = {}
    for op in ops:
        groups.setdefault(op.id if op.clone_id is None else op.clone_id, []).append(op.id)
    return groups
