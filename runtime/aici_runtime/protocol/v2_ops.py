"""Protocol v2: `mid_process` alone. A guest learns the appended tokens and answers with branches.

For a late guest, the runtime answers with a splice without effect and waits for the guest in the next step. The guest
is killed after `--wasm-max-timeout-steps` such steps. The mask row of a late guest stays reserved until the guest has
answered or is gone.
"""

import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import orjson

from aici_base.ids import SeqId
from aici_runtime.channels.envelope import RequestError
from aici_runtime.flags import Limits
from aici_runtime.guests.driver import encode_result
from aici_runtime.memory.mask_region import MaskRegion
from aici_runtime.protocol.commands import parse_steps
from aici_runtime.protocol.guest_forks import GuestForks
from aici_runtime.protocol.guest_sequences import GuestSequences, Lateness, failed
from aici_runtime.protocol.worker_results import NO_ANSWER, UNREADABLE, WorkerResults
from aici_runtime.wire import StepOp
from aici_runtime.workers import worker_replies, worker_requests

if TYPE_CHECKING:
    from aici_runtime.supervision.worker_handle import WorkerHandle

_NOTHING = {
    "branches": [
        {"sample_mask": None, "temperature": None, "splices": [{"when_sampled": [], "backtrack": 0, "ff_tokens": []}]}
    ]
}


class V2Ops:
    """The command of protocol v2."""

    def __init__(self, sequences: GuestSequences, forks: GuestForks, masks: MaskRegion, limits: Limits) -> None:
        self._sequences = sequences
        self._forks = forks
        self._masks = masks
        self._worker_results = WorkerResults(masks.bits.vocab_size)
        self._limit_s = limits.step_limit_s("v2")
        self._max_rounds = limits.late_rounds("v2")
        self._leaving: list[tuple[WorkerHandle, int]] = []
        """Late workers of freed sequences. The mask row of a late worker stays reserved until the worker has ended."""
        masks.begin_v2_rows()

    def mid(self, body: dict[str, Any]) -> bytes:
        """Run `mid_process`. Return `data` of the response, as JSON."""
        command = parse_steps(body)
        self._check(command.ops)
        rows = self._rows(command.ops)
        self._sequences.bind({op.id: op.req_id for op in command.ops if op.req_id is not None})
        refused = {op.id: self._forks.clone(op.id, op.clone_id) for op in command.ops if op.clone_id is not None}
        started = time.monotonic()
        got = self._ask([op for op in command.ops if not refused.get(op.id)], rows)
        used, spare = 0, self._free_rows(rows.values())
        results = []
        for op in command.ops:
            reason = refused.get(op.id)
            if reason:
                result = failed(f"Worker: {reason}")
            else:
                try:
                    result, last = self._result(op.id, got.get(op.id), rows[op.id], spare, started)
                except UNREADABLE:
                    self._sequences.fail(self._sequences[op.id], NO_ANSWER)
                    result, last = failed(NO_ANSWER), -1
                used, result = max(used, last + 1), self._worker_results.step(result)
            results.append(b'"%d":%b' % (op.id, result))
        for sequence in self._sequences.free(command.freed):
            if sequence.late is not None and sequence.worker is not None:
                self._leaving.append((sequence.worker, sequence.late.row))
        late = {sequence.late.row for _, sequence in self._sequences.items() if sequence.late is not None}
        self._masks.disown([row for row in rows.values() if row not in late])
        layout = self._masks.v2_rows
        return (
            b'{"seqs":{%b},"dtype":"%b","first_mask_byte_offset":%d,"mask_num_bytes":%d,"mask_num_elts":%d,"num_masks":%d}'
            % (
                b",".join(results),
                self._masks.dtype.encode(),
                layout.first_byte,
                layout.row_bytes,
                layout.num_elements,
                max(1, used),
            )
        )

    def _check(self, ops: Iterable[StepOp]) -> None:
        """Refuse a bad command as a whole, with RequestError, before anything changes."""
        for op in ops:
            if op.req_id is None and op.clone_id is None and op.id not in self._sequences:
                raise RequestError(f"invalid id {op.id}")
            if op.req_id is not None and op.id in self._sequences:
                raise RequestError(f"duplicate id {op.id}")

    def _rows(self, ops: Sequence[StepOp]) -> dict[SeqId, int]:
        """Assign a v2 mask row to every sequence: a late sequence keeps the old row, the rest get the first
        free rows."""
        self._leaving = [(worker, row) for worker, row in self._leaving if not worker.dead]
        rows = {}
        for op in ops:
            late = self._sequences[op.id].late if op.id in self._sequences else None
            if late is not None:
                rows[op.id] = late.row
        free = self._free_rows()
        for op in ops:
            if op.id not in rows:
                row = next(free, None)
                if row is None:
                    raise RequestError("shm size too small")
                rows[op.id] = row
        for seq_id, row in rows.items():
            self._masks.own(row, seq_id)
        return rows

    def _free_rows(self, but: Iterable[int] = ()) -> Iterator[int]:
        taken = {*but, *(row for _, row in self._leaving)}
        taken |= {sequence.late.row for _, sequence in self._sequences.items() if sequence.late is not None}
        return (row for row in range(self._masks.num_v2_rows) if row not in taken)

    def _ask(self, ops: Sequence[StepOp], rows: Mapping[SeqId, int]) -> dict[SeqId, bytes]:
        groups = _fork_groups(ops)
        requests = (
            (op.id, worker_requests.step(op, rows[op.id], groups[op.id]))
            for op in ops
            if self._sequences[op.id].late is None
        )
        asked = self._sequences.send(self._forks.hold(requests)) + self._forks.advance(math.inf)
        started = time.monotonic()  # from now: a delay up to here must not cost the guests any time
        late: list[SeqId] = []
        for op in ops:
            sequence = self._sequences[op.id]
            if sequence.late is None:
                continue
            if op.backtrack or op.tokens or op.sampled is not None:
                self._sequences.fail(sequence, "Worker: told of tokens while it is still computing")
            else:
                late.append(op.id)
        got, missing = self._sequences.collect([*asked, *late], started + self._limit_s)
        given_up = []
        for seq_id in missing:
            sequence = self._sequences[seq_id]
            sequence.late = sequence.late or Lateness(started, row=rows[seq_id])
            sequence.late.rounds += 1
            if sequence.late.rounds > self._max_rounds:
                given_up.append(seq_id)
        return got | self._sequences.give_up(given_up)

    def _result(
        self, seq_id: SeqId, message: bytes | None, row: int, spare: Iterator[int], started: float
    ) -> tuple[bytes, int]:
        """Return the result of a sequence and the highest mask row that the result names; -1 for no row."""
        sequence = self._sequences[seq_id]
        if message is None and sequence.late is not None:
            return self._nothing(sequence.late, started), -1
        sequence.late = None
        if message is None:
            return failed(sequence.failure), -1
        answer = worker_replies.decode(message)
        rows = self._masks.v2_rows
        if answer.num_masks > len(answer.unwritten) and sequence.worker is not None:
            rows.put(row, sequence.worker.slot.mask(rows.row_bytes))
        if not answer.unwritten:
            return answer.result, row if answer.num_masks else -1
        return self._with_more_masks(answer, row, spare)

    def _nothing(self, late: Lateness, started: float) -> bytes:
        limit_ms = self._limit_s * 1000
        return encode_result(
            result=_NOTHING,
            error="",
            storage=[],
            logs=f"⏲ timeout [deadline: {limit_ms:.0f}ms; step {late.rounds}/{self._max_rounds}]\n",
            micros=int((time.monotonic() - started) * 1e6),
        )

    def _with_more_masks(self, answer: worker_replies.WorkerReply, row: int, spare: Iterator[int]) -> tuple[bytes, int]:
        """Give the further masks of a reply mask rows of their own; the first mask already has a row."""
        numbers = {row: row}
        for k, bits in enumerate(answer.unwritten, 1):
            more = next(spare, None)
            if more is None:
                return failed("no free slots"), -1
            self._masks.v2_rows.write(more, bits)
            numbers[-k] = more
        result = orjson.loads(answer.result)
        for branch in result["result"]["branches"]:
            if branch["sample_mask"] is not None:
                branch["sample_mask"] = numbers[branch["sample_mask"]]
        return orjson.dumps(result), max(numbers.values())


def _fork_groups(ops: Iterable[StepOp]) -> dict[SeqId, list[SeqId]]:
    """Return the fork group of every sequence: the parent first, then the forks by `clone_idx`."""
    groups: dict[SeqId, list[tuple[int, SeqId]]] = {}
    for op in ops:
        parent = op.id if op.clone_id is None else op.clone_id
        groups.setdefault(parent, []).append((op.clone_idx or 0, op.id))
    return {seq_id: [other for _, other in sorted(group)] for group in groups.values() for _, seq_id in group}
