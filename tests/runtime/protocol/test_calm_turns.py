"""Calm turns with real worker slots; the test answers in place of the workers."""

from mmap import mmap
from typing import Any

import pytest

from aici_base.ids import SeqId, TokenId
from aici_runtime.guests.driver import encode_result
from aici_runtime.memory.mask_region import MaskRegion
from aici_runtime.memory.worker_slots import WorkerSlotTable
from aici_runtime.protocol.calm_turns import CalmTurns
from aici_runtime.protocol.guest_sequences import GuestSequence, GuestSequences, Lateness
from aici_runtime.supervision.worker_handle import WorkerHandle
from aici_runtime.turn_message import CalmTurn
from aici_runtime.workers import worker_replies, worker_requests

ONE, TWO, OTHER = SeqId(1), SeqId(2), SeqId(9)
TURN = CalmTurn([TWO, ONE], [ONE], {ONE: (0, TokenId(5))}, [], None)


class NoPools:
    def ring(self, workers: Any) -> None:
        list(workers)


@pytest.fixture
def sequences() -> GuestSequences:
    table = WorkerSlotTable(mask_bytes=8)
    nobody: Any = None
    pools: Any = NoPools()
    made = GuestSequences(table=table, supervisor=nobody, pools=pools, limits=nobody)
    for seq_id in (ONE, TWO):
        slot = table.take(table.guest_half, seq_id)
        table.close_descriptor(slot)
        made.add(seq_id, GuestSequence("r", WorkerHandle(slot, -1)))
    return made


def reply(sequences: GuestSequences, seq_id: SeqId, mask: bytes, **changes: Any) -> bytes:
    """Answer for the worker. Return the request."""
    worker = sequences[seq_id].worker
    assert worker is not None
    request = worker.slot.wait_request()
    result = encode_result(**{"result": None, "error": "", "storage": [], "logs": "", "micros": 120, **changes})
    worker.slot.put_mask(mask)
    before = b"\0\0\0\0" if request[0] == worker_requests.TURN else b""
    worker.slot.put_response(before + worker_replies.encode(result, 1, ()))
    return request


def test_masks_go_to_the_rows_of_the_ops(sequences: GuestSequences) -> None:
    memory = mmap(-1, 4096)
    calm = CalmTurns(sequences, MaskRegion(memory, dtype="bool", vocab_size=64))
    assert calm.begin(TURN)
    assert reply(sequences, ONE, b"1" * 8, micros=250) == worker_requests.turn_of_token(ONE, 0, TokenId(5), 1)
    assert reply(sequences, TWO, b"2" * 8) == worker_requests.mid(0, [TWO])
    assert calm.finish(0.0) == [120, 250]
    assert memory[:16] == b"2" * 8 + b"1" * 8


@pytest.mark.parametrize("changes", [{"logs": "said"}, {"error": "it failed"}, {"result": {"backtrack": 1}}, None])
def test_who_says_more_or_nothing_ends_the_calm(sequences: GuestSequences, changes: dict[str, Any] | None) -> None:
    calm = CalmTurns(sequences, MaskRegion(mmap(-1, 4096), dtype="bool", vocab_size=64))
    assert calm.begin(TURN)
    reply(sequences, TWO, bytes(8))
    if changes is not None:
        reply(sequences, ONE, bytes(8), **changes)
    assert calm.finish(0.0) is None
    # The replies can be read again.
    got, missing = sequences.collect([TWO, ONE], 0.0)
    assert (got.keys(), missing) == (({TWO}, [ONE]) if changes is None else ({TWO, ONE}, []))


@pytest.mark.parametrize(
    "turn",
    [
        TURN._replace(ids=[ONE, OTHER]),
        TURN._replace(ids=[ONE, ONE]),
        TURN._replace(ids=[TWO]),
        TURN._replace(asked=[TWO]),
        TURN._replace(asked=[ONE, ONE]),
        TURN._replace(asked=[ONE, OTHER]),
    ],
)
def test_other_turns_are_not_begun(sequences: GuestSequences, turn: CalmTurn) -> None:
    calm = CalmTurns(sequences, MaskRegion(mmap(-1, 4096), dtype="bool", vocab_size=64))
    assert not calm.begin(turn)
    assert not any(sequence.worker and sequence.worker.slot.has_request() for _, sequence in sequences.items())


@pytest.mark.parametrize("changes", [{"late": Lateness(0.0)}, {"worker": None}, {"held_reply": object()}])
def test_a_guest_that_is_not_calm(sequences: GuestSequences, changes: dict[str, Any]) -> None:
    for name, value in changes.items():
        setattr(sequences[ONE], name, value)
    calm = CalmTurns(sequences, MaskRegion(mmap(-1, 4096), dtype="bool", vocab_size=64))
    assert not calm.begin(TURN)
    worker = sequences[TWO].worker
    assert worker is not None
    assert not worker.slot.has_request()


def test_rows_without_room(sequences: GuestSequences) -> None:
    calm = CalmTurns(sequences, MaskRegion(mmap(-1, 16), dtype="bool", vocab_size=64))
    assert not calm.begin(TURN)
