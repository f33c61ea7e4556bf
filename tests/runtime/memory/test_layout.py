"""Layouts of shared-memory records."""

import doctest
from itertools import pairwise

from aici_runtime.memory import layout, worker_slots
from aici_runtime.memory.layout import WORD_BYTES, Layout


def test_the_example_of_the_docstring() -> None:
    assert doctest.testmod(layout).failed == 0


def test_fields_do_not_overlap_and_words_are_aligned() -> None:
    record = Layout()
    record.area("tag", 3)
    record.word("number")
    record.area("bytes", 5)
    record.align(16)
    record.word("last")
    assert [(field.offset, field.size_bytes) for field in record.fields] == [(0, 3), (4, 4), (8, 5), (16, 4)]
    for before, after in pairwise(record.fields):
        assert before.offset + before.size_bytes <= after.offset


def test_a_table_keeps_the_slots_and_owners_apart() -> None:
    """Fill a slot to the limits: the neighbours and the fields behind the slots stay unchanged."""
    table = worker_slots.WorkerSlotTable()
    slot, last = table.take(table.guest_half, 7), table.at(worker_slots.NUM_WORKER_SLOTS - 1)
    table.protocol = "v2"
    last.claim()
    for each in (slot, last):
        each.send_request(b"x" * worker_slots.REQUEST_MAX)
        each.put_response(b"y" * (worker_slots.RESPONSE_MAX + worker_slots.POST_PRE_MAX))
        assert each.wait_request() == b"x" * worker_slots.REQUEST_MAX
    assert table.at(slot.index + 1).is_free()
    assert (table.protocol, table.owner(slot), table.owner(last)) == ("v2", 7, 0)
    assert worker_slots.num_used_slots(bytes(table.memory)) == 1
    assert len(table.memory) % WORD_BYTES == 0
