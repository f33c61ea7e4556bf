"""A mask taken away by the stepper: the mask is either in the slot already, or travels in the reply."""

import threading
import time
from mmap import mmap
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

from aici_base.ids import SeqId
from aici_runtime.guests.driver import GuestDriver
from aici_runtime.guests.guest_state import GuestState
from aici_runtime.memory.mask_region import MaskRegion
from aici_runtime.memory.worker_slots import WorkerSlotTable, owner_id
from aici_runtime.workers import worker_replies, worker_requests
from aici_runtime.workers.guest_server import GuestServer

if TYPE_CHECKING:
    from collections.abc import Callable

    from aici_runtime.guests.guest import Guest

ROW = 2
BITS = b"\6\0\0\0"


class Allows(GuestDriver):
    """A guest that allows tokens 1 and 2, and calls `at_work` while computing."""

    def __init__(self) -> None:
        self.at_work: Callable[[], None] = lambda: None

    def mid(self, fork_group: bytes) -> tuple[bytes, bytes | bytearray | None]:
        self.at_work()
        return b"{}", BITS

    def post(self, tokens: bytes, backtrack: int) -> bytes:
        raise NotImplementedError

    def pre(self) -> bytes:
        raise NotImplementedError

    def step(self, argument: bytes, row: int) -> tuple[bytes, list[bytearray]]:
        raise NotImplementedError


class World:
    """A worker and its stepper in a single thread. `memory`: the mask region with a bit per token."""

    def __init__(self) -> None:
        table = WorkerSlotTable(mask_bytes=len(BITS))
        self.slot = table.take(table.guest_half, owner_id("somebody"))
        table.close_descriptor(self.slot)
        self.memory = mmap(-1, 1 << 16)
        masks = MaskRegion(self.memory, dtype="bool", vocab_size=32)
        guest = cast("Guest", SimpleNamespace(abi="v1"))
        self.guest = Allows()
        self._server = GuestServer(self.slot, guest, self.guest, GuestState(), masks, threading.Lock())

    def compute(self) -> bytes:
        """Return the reply that the worker is about to send."""
        self.slot.send_request(worker_requests.mid(ROW, [SeqId(1)]))
        return self._server.answer(self.slot.wait_request())

    def detach(self) -> bool:
        return self.slot.detach(time.monotonic())

    def row(self) -> bytes:
        return bytes(self.slot.mask(len(BITS)))


def test_a_row_is_not_taken_from_a_mask_that_is_in_it() -> None:
    """Otherwise the reply, which refers to the row, would be read in a step in which the row has a different owner."""
    world = World()
    response = world.compute()
    assert (world.row(), worker_replies.written_result(response)) == (BITS, b"{}")
    assert not world.detach()
    world.slot.put_response(response)
    assert world.detach()
    world.slot.send_request(b"the next")
    assert world.detach()  # an old write is not waited for again


def test_a_mask_that_comes_with_its_answer() -> None:
    world = World()
    world.guest.at_work = lambda: taken.append(world.detach())
    taken: list[bool] = []
    response = world.compute()
    assert taken == [True]
    assert world.row() == bytes(4)
    assert worker_replies.decode(response) == (b"{}", 1, [BITS])
    assert world.detach()  # no wait
    world.slot.put_response(response)
    world.guest.at_work = lambda: None
    assert worker_replies.written_result(world.compute()) == b"{}"
    assert world.row() == BITS
