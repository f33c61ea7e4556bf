"""The control region: one slot per worker, mapped before anything is forked, so that no worker needs a name.

    slot k at k * SLOT_BYTES
    +0   request   u32 futex word: 0 = none, else bytes of JSON at +HEADER_BYTES
    +4   response  u32 futex word: 0 = none yet, DEAD = the worker is gone, else bytes at +RESPONSE_AT
    +8   cancel    u32: number of the request that the stepper wants interrupted
    +12  number    u32: number of the latest request
    +16  state     u32: FREE or USED
    +32  detach    u32: number of the request that must no longer write into the mask region
    +36  writing   u32: number of the request whose mask is in its row when it is answered, if it is not detached
    +40  in pre    u32: 1 = the guest finds its mask in the pre phase
    +44  bell      u32 futex word of a pool (see `pool.py`): rung when there are requests for its guests
    +48  told      u32 futex word of a pool: counts how often it has answered
    +52  leave     u32: LEAVING = the guest is to leave its pool, LEFT = it has
    +56  in mid    u32: when the latest request's mid began, in milliseconds of the clock; 0 = it has not
    behind the last slot: u32: 1 = the engine speaks the later protocol
    64 bytes further: u32 for each slot: whose it is, 0 = nobody's

One request is outstanding per slot. The lower half of the slots is handed out by the side process (new guests), the
upper half by the stepper (forks), so that neither needs a lock. USED becomes FREE only in the stepper, after the worker
is confirmed gone: a late answer can never be taken for that of the next tenant.
"""

import signal
import time
import zlib
from mmap import MAP_ANONYMOUS, MAP_SHARED, PAGESIZE, mmap

from aici_base.errors import QuotaError
from aici_runtime.memory.futex import Futex
from aici_runtime.quota import Quota
from aici_runtime.wire import Proto

NUM_WORKER_SLOTS = 512
HEADER_BYTES = 64
RESPONSE_AT = 128 * 1024
RESPONSE_MAX = 896 * 1024
"""64 KiB of logs may grow sixfold as JSON, and a response may hold two of them."""

TOLD_MAX = 16 * 1024
"""Of post and pre, in a response that has a mid too."""

SLOT_BYTES = RESPONSE_AT + TOLD_MAX + RESPONSE_MAX
"""Sparse: memory is taken page by page as messages need it."""

REQUEST_MAX = RESPONSE_AT - HEADER_BYTES

CANCEL_SIGNAL = signal.SIGUSR2
"""Sent after `cancel` has been written, to make the worker look at it."""

DEAD = 0xFFFFFFFF
_FREE, _USED = 0, 1
_LEAVING, _LEFT = 1, 2
_PROTOCOL_AT = NUM_WORKER_SLOTS * SLOT_BYTES
_OWNERS_AT = _PROTOCOL_AT + 64
_MAP_NORESERVE = 0x4000
_STAMP_MAX = 0x7FFFFFFF


_HINT = "wait until others have ended"
NO_QUOTA = Quota("guests", "--max-instances", NUM_WORKER_SLOTS, NUM_WORKER_SLOTS)


def owner_id(user: str) -> int:
    """Not 0. Two users have the same one in two billion, and then one quota."""
    return zlib.crc32(user.encode()) | 1


def used_slots(behind: bytes) -> int:
    """How many have an owner, by what is behind the last slot."""
    start = _OWNERS_AT - _PROTOCOL_AT
    return NUM_WORKER_SLOTS - memoryview(behind)[start : start + 4 * NUM_WORKER_SLOTS].cast("I").tolist().count(0)


class WorkerSlotTable:
    """Owns the mapping; inherited by fork. `side` and `branches` are the two halves."""

    def __init__(self, quota: Quota = NO_QUOTA) -> None:
        self._quota = quota
        self.memory = mmap(-1, _PROTOCOL_AT + PAGESIZE, flags=MAP_SHARED | MAP_ANONYMOUS | _MAP_NORESERVE)
        self.words = Futex(self.memory)
        self.side = range(NUM_WORKER_SLOTS // 2)
        self.branches = range(NUM_WORKER_SLOTS // 2, NUM_WORKER_SLOTS)
        self._owners = memoryview(self.memory)[_OWNERS_AT : _OWNERS_AT + 4 * NUM_WORKER_SLOTS].cast("I")

    @property
    def protocol(self) -> Proto:
        """The protocol that the engine speaks."""
        return "v2" if self.words.load(_PROTOCOL_AT) == 1 else "v1"

    @protocol.setter
    def protocol(self, protocol: Proto) -> None:
        """Set by the stepper's process alone."""
        self.words.store(_PROTOCOL_AT, int(protocol == "v2"))

    def take(self, half: range, owner: int) -> "WorkerSlot":
        """A free slot of `half`, for a user (`owner_id`). Called by one thread at a time of the process that has this
        half. QuotaError when there are too many; where both processes take the last one at once, there is one more."""
        owners = self._owners.tolist()
        self._quota.check(1 + NUM_WORKER_SLOTS - owners.count(0), 1 + owners.count(owner), hint=_HINT)
        for index in half:
            slot = self.at(index)
            if slot.claim():
                self._owners[index] = owner
                return slot
        kind = "forks" if half is self.branches else "guests"
        raise QuotaError(f"all {len(half)} slots for {kind} are taken", hint=_HINT)

    def owner(self, slot: "WorkerSlot") -> int:
        return self._owners[slot.index]

    def free(self, slot: "WorkerSlot") -> None:
        """Only in the stepper's process, when nobody can touch it any more."""
        self._owners[slot.index] = 0
        slot.free()

    def at(self, index: int) -> "WorkerSlot":
        return WorkerSlot(self, index)


class WorkerSlot:
    """A view of one slot, for either end."""

    def __init__(self, table: WorkerSlotTable, index: int) -> None:
        self.index = index
        self._words = table.words
        self._memory = table.memory
        self._base = index * SLOT_BYTES

    def claim(self) -> bool:
        if not self.is_free():
            return False
        for offset in (0, 4, 8, 12, 32, 36, 40, 44, 48, 52, 56):
            self._words.store(self._base + offset, 0)
        self._words.store(self._base + 16, _USED)
        return True

    def free(self) -> None:
        self._words.store(self._base + 16, _FREE)

    def is_free(self) -> bool:
        return self._words.load(self._base + 16) == _FREE

    # The stepper's end.

    def send_request(self, request: bytes) -> None:
        """The caller has seen the previous response."""
        self._write_request(request)
        self._words.wake(self._base)

    def _write_request(self, request: bytes) -> None:
        start = self._base + HEADER_BYTES
        self._memory[start : start + len(request)] = request
        number = (self._words.load(self._base + 12) + 1) & 0x7FFFFFFF
        self._words.store(self._base + 12, number)
        self._words.store(self._base + 4, 0)
        self._words.store(self._base + 56, 0)
        self._words.store(self._base, len(request))

    def put_request(self, request: bytes) -> None:
        """As `send_request`, for a worker that hears a bell instead."""
        self._write_request(request)

    def ring(self) -> None:
        """There is something to do in this process: see `pool.py`."""
        self._words.store(self._base + 44, (self._words.load(self._base + 44) + 1) & 0x7FFFFFFF)
        self._words.wake(self._base + 44)

    def wait_response_in(self, pool: "WorkerSlot", deadline: float) -> bytes | None:
        """As `wait_response`, for a guest in that pool, which tells of many answers at once."""
        while True:
            told = pool.num_told()
            response = self.wait_response(0.0)
            if response is not None or not pool.wait_told(told, deadline):
                return response

    def num_told(self) -> int:
        return self._words.load(self._base + 48)

    def wait_told(self, told: int, deadline: float) -> bool:
        """False when `deadline` has passed."""
        return self._words.wait_while(self._base + 48, told, deadline) != told

    def tell(self) -> None:
        self._words.store(self._base + 48, (self._words.load(self._base + 48) + 1) & 0x7FFFFFFF)
        self._words.wake(self._base + 48)

    def let_go(self) -> None:
        """The guest in this slot is to leave its pool."""
        self._words.store(self._base + 52, _LEAVING)

    def has_left(self) -> bool:
        return self._words.load(self._base + 52) == _LEFT

    def wait_response(self, deadline: float) -> bytes | None:
        """The response; empty when the worker is gone; None when `deadline` (time.monotonic()) has passed."""
        length = self._words.wait_while(self._base + 4, 0, deadline)
        if length == 0:
            return None
        if length == DEAD:
            return b""
        start = self._base + RESPONSE_AT
        return self._memory[start : start + length]

    def mark_dead(self) -> None:
        """Whoever waits for a response stops waiting. An answer that is already there stays."""
        if self._words.load(self._base + 4) == 0:
            self._words.store(self._base + 4, DEAD)
        self._words.wake(self._base + 4)

    def cancel(self) -> None:
        self._words.store(self._base + 8, self._words.load(self._base + 12))

    def detach(self, deadline: float) -> bool:
        """From now on the worker does not write a mask for its request: it will see the word, whenever it runs again.
        Who was writing already is waited for until it has answered, since the row will be another's in the next step.
        False: it has not when `deadline` has passed."""
        number = self._words.load(self._base + 12)
        self._words.store(self._base + 32, number)
        self._words.fence()
        while self._words.load(self._base + 36) == number and self._words.load(self._base + 4) == 0:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.0005)
        return True

    def mid_began(self) -> float | None:
        """When (time.monotonic()), if it has."""
        stamp = self._words.load(self._base + 56)
        now = time.monotonic()
        return now - ((_stamp(now) - stamp) & _STAMP_MAX) / 1000 if stamp else None

    def masks_in_pre(self) -> bool:
        return self._words.load(self._base + 40) != 0

    # The worker's end.

    def set_masks_in_pre(self) -> None:
        """Before the guest is announced."""
        self._words.store(self._base + 40, 1)

    def wait_request(self) -> bytes:
        length = self._words.wait_while(self._base, 0)
        start = self._base + HEADER_BYTES
        request = self._memory[start : start + length]
        self._words.store(self._base, 0)
        return request

    def begin_mid(self) -> None:
        self._words.store(self._base + 56, _stamp(time.monotonic()) or 1)

    def has_request(self) -> bool:
        return self._words.load(self._base) != 0

    def wait_bell(self, heard: int) -> int:
        """Until it has been rung since it was heard last; returns what to give the next time."""
        return self._words.wait_while(self._base + 44, heard)

    def put_response(self, response: bytes) -> None:
        """Whoever waits is told of it later, by `tell`."""
        start = self._base + RESPONSE_AT
        self._memory[start : start + len(response)] = response
        self._words.store(self._base + 4, len(response))

    def send_response(self, response: bytes) -> None:
        self.put_response(response)
        self._words.wake(self._base + 4)

    def is_leaving(self) -> bool:
        return self._words.load(self._base + 52) == _LEAVING

    def leave(self) -> None:
        self._words.store(self._base + 52, _LEFT)

    def is_cancelled(self) -> bool:
        number = self._words.load(self._base + 12)
        return number != 0 and self._words.load(self._base + 8) == number

    def is_detached(self) -> bool:
        number = self._words.load(self._base + 32)
        return number != 0 and self._words.load(self._base + 12) == number

    def begin_write(self) -> bool:
        """Whether the mask may be written: then the stepper waits for the response."""
        self._words.store(self._base + 36, self._words.load(self._base + 12))
        self._words.fence()  # the stepper either sees that, or has been seen
        if self.is_detached():
            self._words.store(self._base + 36, 0)
            return False
        return True


def _stamp(now: float) -> int:
    return int(now * 1000) & _STAMP_MAX
