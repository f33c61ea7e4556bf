"""A guest behind a worker slot: answers the requests of `worker_requests.py`."""

import struct
from collections.abc import Sequence
from contextlib import AbstractContextManager

from aici_runtime.guests.driver import GO_ON, NO_STOP, GuestDriver, encode_result
from aici_runtime.guests.guest import Guest
from aici_runtime.guests.guest_state import GuestState
from aici_runtime.guests.native.host import NativeHost
from aici_runtime.memory.mask_region import MaskRegion, MaskRows
from aici_runtime.memory.worker_slots import POST_PRE_MAX, RESPONSE_MAX, WorkerSlot
from aici_runtime.workers import worker_replies, worker_requests
from aici_runtime.workers.native_guest import NativeGuest

_LENGTH = struct.Struct("<I")


class GuestServer:
    """A guest too late for the mask row is *detached* (`WorkerSlot.detach`): the mask then travels in the reply.

    `lock` guards `is_busy`. A busy server is at work on a request and may be interrupted. With `native`, the loop in C
    answers the usual requests; the rest is answered here, as all is without.
    """

    def __init__(
        self,
        slot: WorkerSlot,
        guest: Guest,
        driver: GuestDriver,
        state: GuestState,
        masks: MaskRegion,
        lock: AbstractContextManager[object],
        native: NativeHost | None = None,
    ) -> None:
        self.guest = guest
        self.driver = driver
        self.state = state
        self.lock = lock
        self._masks = masks
        self._latest_op = worker_requests.PRE
        self.native = NativeGuest(native, guest, driver, state) if native is not None else None
        self._busy = memoryview(bytearray(4)).cast("I") if self.native is None else self.native.busy
        self.use_slot(slot)

    def use_slot(self, slot: WorkerSlot) -> None:
        """Serve a slot from now on, after a fork."""
        self.slot = slot
        if self.guest.abi == "v2":
            slot.set_computes_mask_in_pre()
        if self.native is not None:
            self.native.use_slot(slot)

    @property
    def is_busy(self) -> bool:
        """Whether the server is at work on a request."""
        return self._busy[0] != 0

    @is_busy.setter
    def is_busy(self, is_busy: bool) -> None:
        self._busy[0] = int(is_busy)

    def serve_usual(self) -> None:
        """Answer usual requests in C, until a request waits that is not usual. Without the loop, none is usual.

        After a step of protocol v2, which the loop does not know, Python waits for the next request itself.
        """
        if self.native is not None and self._latest_op != worker_requests.STEP:
            self.native.begin()
            self.native.host.serve_guest(self.native.struct)
            self.native.end()

    def leave(self) -> None:
        """Serve the guest no more."""
        if self.native is not None:
            self.native.close()

    def answer(self, request: bytes) -> bytes:
        """Answer mid, step, pre, post and turn."""
        op, seq_id, row, backtrack = worker_requests.HEAD.unpack_from(request)
        self._latest_op = op
        rest = request[worker_requests.HEAD.size :]
        if op == worker_requests.MID:
            return self._mid(rest)
        self.state.seq_id = seq_id
        if op == worker_requests.STEP:
            result, masks = self.driver.step(rest, row)
            return self._answer(result, masks, self._masks.v2_rows)
        if op == worker_requests.TURN:
            return self._turn(seq_id, rest, backtrack)
        post = self.driver.post(rest, backtrack) if op == worker_requests.POST else b""
        return self._finish(self._post_pre_reply(post, self.driver.pre()))

    def _turn(self, seq_id: int, tokens: bytes, backtrack: int) -> bytes:
        driver, post = self.driver, b""
        goes_on = is_silent = True
        if tokens:
            post = driver.post(tokens, backtrack)
            goes_on, is_silent = driver.said == NO_STOP, driver.is_silent
        post_pre = self._post_pre_reply(post, driver.pre())
        goes_on = goes_on and driver.said == GO_ON and len(post_pre) <= POST_PRE_MAX - _LENGTH.size
        has_started_mid = self.slot.has_started_mid()  # then the loop in C has run mid already
        if not goes_on or (self.slot.is_cancelled() and not has_started_mid):
            return self._finish(_LENGTH.pack(len(post_pre)) + post_pre)
        if is_silent and driver.is_silent:
            post_pre = b""
        if not has_started_mid:
            self.slot.start_mid()
        return _LENGTH.pack(len(post_pre)) + post_pre + self._mid(b"[%d]" % seq_id)

    def _finish(self, response: bytes) -> bytes:
        with self.lock:
            self.is_busy = False
        return response

    def _post_pre_reply(self, post: bytes, pre: bytes) -> bytes:
        if len(post) + len(pre) > RESPONSE_MAX - _LENGTH.size:
            half = RESPONSE_MAX // 2 - _LENGTH.size
            post, pre = _fitting(post, half), _fitting(pre, half)
        return _LENGTH.pack(len(post)) + post + pre

    def _mid(self, fork_group: bytes) -> bytes:
        result, bits = self.driver.mid(fork_group)
        return self._answer(result, () if bits is None else (bits,), self._masks.v1_rows)

    def _answer(self, result: bytes, masks: Sequence[bytes | bytearray], rows: MaskRows) -> bytes:
        unwritten = masks
        first = rows.encoded(masks[0]) if masks else b""
        if masks and self.slot.start_mask_write():  # from here to the response, a step may wait for this worker
            self.slot.put_mask(first)
            unwritten = masks[1:]
        answer = self._finish(worker_replies.encode(result, len(masks), unwritten))
        if len(answer) <= RESPONSE_MAX:
            return answer
        return worker_replies.encode(_too_large(len(answer), RESPONSE_MAX), 0, ())


def split_post_pre(response: bytes) -> tuple[bytes, bytes]:
    """Split the reply to pre or post into the two results. The first is empty without a post op."""
    end = _LENGTH.size + _LENGTH.unpack_from(response)[0]
    return response[_LENGTH.size : end], response[end:]


def split_turn(response: bytes) -> tuple[bytes, bytes]:
    """Split the reply to a turn: the reply to pre or post, empty if they say nothing but to go on; and the reply to
    mid, empty if mid did not run."""
    return split_post_pre(response)


def _fitting(result: bytes, limit: int) -> bytes:
    return result if len(result) <= limit else _too_large(len(result), limit)


def _too_large(length: int, limit: int) -> bytes:
    error = f"Worker: result too large; {length} > {limit}"
    return encode_result(result=None, error=error, storage=[], logs=error, micros=0)
