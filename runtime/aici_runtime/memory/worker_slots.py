"""Worker slots: the shared-memory records through which the stepper and the workers talk.

The register holds the state and the owner of all slots; workers do not map the register. The memory of a slot is a file
of its own (`slot_memory.py`), new for every worker, which maps no other; a pool maps those of its guests. `_SLOT` and
`_REGISTER` below declare the layouts; every offset in this file comes from these two declarations.

A worker slot holds at most one outstanding request. The stepper writes a request and the words of its own side; the
worker writes the response. A word marked *futex* is waited for and woken.

The side process hands out the lower half of the slots (new guests) and the stepper the upper half (forks), so neither
needs a lock. Only the stepper's process frees a slot, after the worker is confirmed gone. A late response can therefore
never be taken for a response of the next worker in the slot.
"""

import os
import signal
import time
import zlib
from mmap import MAP_ANONYMOUS, MAP_SHARED, PAGESIZE, mmap
from typing import Final

from aici_base.errors import QuotaError
from aici_runtime.memory.futex import Futex
from aici_runtime.memory.layout import WORD_BYTES, Layout
from aici_runtime.memory.slot_memory import SlotMemory, unmap
from aici_runtime.quota import Quota
from aici_runtime.wire import Proto

NUM_WORKER_SLOTS = 512
"""The limit of guests that run at once, forks included. Half of the slots are for new guests, half for forks."""

POOL_OWNER = 2
"""The owner of the slots of pools, which count in no quota. The id of a user is odd."""

POOL_GUESTS_MAX = 64
"""The limit of guests in one process, a pool, but for the forks of its guests."""

POOL_EMPTIED_MAX = 16
"""The limit of emptied instances that a pool keeps for its next guests."""

RESPONSE_MAX = 896 * 1024
"""Bytes of a response. 64 KiB of logs may grow sixfold as JSON, and a response may hold two logs."""

POST_PRE_MAX = 16 * 1024
"""Bytes of the post and pre results in a response that also holds a mid result."""

CANCEL_SIGNAL = signal.SIGUSR2
"""The signal that makes a worker look at the word `cancelled`. Sent after the word is written."""

# The layout of one worker slot. The words share the first cache line.
_SLOT = Layout()
_REQUEST = _SLOT.word("request")  # futex: 0 = no request, else the length of the bytes at _REQUEST_BYTES
_RESPONSE = _SLOT.word("response")  # futex: 0 = none yet, _DEAD = the worker is gone, else the length of the bytes
_CANCELLED = _SLOT.word("cancelled")  # number of the request that the stepper wants interrupted
_NUMBER = _SLOT.word("number")  # number of the latest request
_DETACHED = _SLOT.word("detached")  # number of the request whose mask must no longer be written
_WRITING = _SLOT.word("writing")  # number of the request whose mask is being written, or is written
_MASK_IN_PRE = _SLOT.word("mask in pre")  # 1 = the guest computes its mask in the pre phase
_BELL = _SLOT.word("bell")  # futex, of a pool: counts the rings, in bytes of its own for each who rings
_ANSWERED = _SLOT.word("answered")  # futex, of a pool: counts the rounds of responses
_LEAVE = _SLOT.word("leave")  # 1 = the guest is to leave its pool
_GUESTS = _SLOT.word("guests")  # of a pool: the number of its guests
_MID_STARTED = _SLOT.word("mid started")  # start of the mid phase, in milliseconds of the clock; 0 = not started
_GONE = _SLOT.word("gone")  # 1 = the worker is gone, for the stepper's loop in C
_KEY = _SLOT.area("key", 8)  # random: proves that a new worker has got the memory of its slot
_SLOT.align(64)
_REQUEST_BYTES = _SLOT.area("request bytes", 128 * 1024 - 64)
_RESPONSE_BYTES = _SLOT.area("response bytes", POST_PRE_MAX + RESPONSE_MAX)

_SLOT.align(64)
_MASK = _SLOT.size_bytes  # a mask in the format of the rows, of a size that depends on the vocabulary

SLOT_OFFSETS: Final = (
    *(_REQUEST, _RESPONSE, _CANCELLED, _NUMBER, _DETACHED, _WRITING, _BELL, _ANSWERED, _LEAVE, _MID_STARTED),
    *(_REQUEST_BYTES, _RESPONSE_BYTES, _MASK, _GONE),
)
"""For the loop in C, in the order of its struct (`guests/native`)."""

BY_STEPPER, BY_POOL, BY_SUPERVISOR = slice(_BELL, _BELL + 1), slice(_BELL + 1, _BELL + 2), slice(_BELL + 2, _BELL + 4)
"""Who rings the bell of a pool: a thread of the stepper's process, or of the pool itself. So nobody takes back the ring
of another. A byte may come round between two looks of the pool: the stepper rings again at the next step."""

# The layout of the register.
_REGISTER = Layout()
_NAME = _REGISTER.area("name", 16)
_PROTOCOL = _REGISTER.word("protocol")  # 1 = the engine speaks protocol v2
_REGISTER.align(64)
_STATES = _REGISTER.area("states", NUM_WORKER_SLOTS * WORD_BYTES)  # for each slot: _FREE or _USED
_OWNERS = _REGISTER.area("owners", NUM_WORKER_SLOTS * WORD_BYTES)  # for each slot: the owner's id; 0 = nobody
_REGISTER.align(PAGESIZE)

REGISTER_NAME = b"aicirt register\n"
"""The first bytes of the register, for tests of leaks."""

REGISTER_BYTES = _REGISTER.size_bytes

REQUEST_MAX = _RESPONSE_BYTES - _REQUEST_BYTES
"""Bytes of a request."""

_FREE, _USED = 0, 1
_DEAD = 0xFFFFFFFF
_NUMBER_MAX = _COUNT_MAX = _MILLISECONDS_MAX = 0x7FFFFFFF
_DETACH_POLL_S = 0.0005

_HINT = "wait until others have ended"
NO_QUOTA = Quota("guests", "--max-instances", NUM_WORKER_SLOTS, NUM_WORKER_SLOTS)


def owner_id(user: str) -> int:
    """Return the id of a user, never 0. Two users collide in one of two billion cases and then share a quota."""
    return zlib.crc32(user.encode()) | 1


def num_used_slots(register: bytes) -> int:
    """Return the number of slots with an owner, given the bytes of the register. For tests of leaks."""
    owners = memoryview(register)[_OWNERS : _OWNERS + NUM_WORKER_SLOTS * WORD_BYTES].cast("I").tolist()
    return NUM_WORKER_SLOTS - owners.count(0)


class WorkerSlotTable:
    """Owns the register, which forks inherit, and the memories of slots that this process has mapped. `guest_half` and
    `fork_half` are the indices of the two halves.

    `mask_bytes`: the largest row of the mask region.
    """

    def __init__(self, quota: Quota = NO_QUOTA, *, mask_bytes: int = 0) -> None:
        self._quota = quota
        self.memory = mmap(-1, _REGISTER.size_bytes, flags=MAP_SHARED | MAP_ANONYMOUS)
        self.memory[_NAME : _NAME + len(REGISTER_NAME)] = REGISTER_NAME
        self.words = Futex(self.memory)
        self._slot_bytes = _MASK + mask_bytes + -(_MASK + mask_bytes) % PAGESIZE
        self._memories: dict[int, SlotMemory] = {}
        self._has_register = True
        self._known_protocol: Proto = "v1"
        self.guest_half = range(NUM_WORKER_SLOTS // 2)
        self.fork_half = range(NUM_WORKER_SLOTS // 2, NUM_WORKER_SLOTS)
        self._owners = memoryview(self.memory)[_OWNERS : _OWNERS + NUM_WORKER_SLOTS * WORD_BYTES].cast("I")

    @property
    def protocol(self) -> Proto:
        """The protocol that the engine speaks. A worker knows the protocol from its order (`learn_protocol`)."""
        if not self._has_register:
            return self._known_protocol
        return "v2" if self.words.load(_PROTOCOL) == 1 else "v1"

    @protocol.setter
    def protocol(self, protocol: Proto) -> None:
        """Set by the stepper's process alone."""
        self.words.store(_PROTOCOL, int(protocol == "v2"))

    def learn_protocol(self, protocol: Proto) -> None:
        """Remember the protocol in a worker, which does not map the register."""
        self._known_protocol = protocol

    def leave(self) -> None:
        """Unmap the register and all memories, in the process that forks workers."""
        self._has_register = False
        unmap(self.memory)
        for memory in self._memories.values():
            memory.unmap()
        self._memories.clear()

    def take(self, half: range, owner: int) -> "WorkerSlot":
        """Return a free slot of `half` for a user (`owner_id`). Raises QuotaError when the user or the runtime is full.

        To be called by one thread at a time, in the process that owns the half. When the side process and the stepper
        both take the last slot at once, the quota is exceeded by one.
        """
        if owner != POOL_OWNER:
            owners = self._owners.tolist()
            num_guests = NUM_WORKER_SLOTS - owners.count(0) - owners.count(POOL_OWNER)
            self._quota.check(1 + num_guests, 1 + owners.count(owner), hint=_HINT)
        for index in half:
            if self.words.load(_STATES + WORD_BYTES * index) == _FREE:
                self._memories[index] = SlotMemory.create(self._slot_bytes)
                slot = self.at(index)
                slot.claim()
                self._owners[index] = owner
                return slot
        kind = "forks" if half is self.fork_half else "guests"
        raise QuotaError(f"all {len(half)} slots for {kind} are taken", hint=_HINT)

    def owner(self, slot: "WorkerSlot") -> int:
        """Return the id of the user to whom the slot belongs."""
        return self._owners[slot.index]

    def free(self, slot: "WorkerSlot") -> None:
        """Free a slot that nobody can touch any more. For the stepper's process alone."""
        self._owners[slot.index] = 0
        self.forget(slot)
        slot.free()

    def forget(self, slot: "WorkerSlot") -> None:
        """Forget the memory of a slot that this process does not use any more. The last view unmaps the memory."""
        memory = self._memories.pop(slot.index, None)
        if memory is not None:
            memory.close_descriptor()

    def descriptor(self, slot: "WorkerSlot") -> int:
        """Return the descriptor of the memory of a slot that this process has taken; -1 without one."""
        return self._memories[slot.index].descriptor if slot.index in self._memories else -1

    def close_descriptor(self, slot: "WorkerSlot") -> None:
        """Close the descriptor of a slot's memory, once the worker has got it."""
        if slot.index in self._memories:
            self._memories[slot.index].close_descriptor()

    def attach(self, index: int, descriptor: int) -> "WorkerSlot":
        """Map the memory of a slot that another process has taken, and close the descriptor. Raises OSError."""
        try:
            memory = self._memories[index] = SlotMemory(self._slot_bytes, descriptor)
        finally:
            os.close(descriptor)
        return WorkerSlot(self, index, memory)  # `forget` of an earlier life may have come in between

    def unmap(self, slot: "WorkerSlot") -> None:
        """Unmap the memory of a slot in a fork of its worker."""
        memory = self._memories.pop(slot.index, None)
        if memory is not None:
            memory.unmap()

    def memory_of(self, index: int) -> "SlotMemory":
        """Return the memory of a slot. A slot whose memory was lost on the way gets a memory without a worker."""
        memory = self._memories.get(index)
        if memory is None:
            memory = self._memories[index] = SlotMemory(self._slot_bytes)
        return memory

    def at(self, index: int) -> "WorkerSlot":
        """Return a view of the slot `index`."""
        return WorkerSlot(self, index, self.memory_of(index))


class WorkerSlot:
    """A view of one worker slot, for the stepper and for the worker."""

    def __init__(self, table: WorkerSlotTable, index: int, memory: SlotMemory) -> None:
        self.index = index
        self._table = table
        self._memory = memory.memory
        self._words = memory.words
        self._view = memory.view

    @property
    def address(self) -> int:
        """The address of the slot's memory in this process."""
        return self._words.address

    def claim(self) -> None:
        """Take a free slot, whose memory is new: give it a key."""
        self._memory[_KEY : _KEY + 8] = os.urandom(8)
        self._table.words.store(_STATES + WORD_BYTES * self.index, _USED)

    def free(self) -> None:
        """Mark the slot as free."""
        self._table.words.store(_STATES + WORD_BYTES * self.index, _FREE)

    def is_free(self) -> bool:
        """Return whether the slot can be claimed."""
        return self._table.words.load(_STATES + WORD_BYTES * self.index) == _FREE

    def key(self) -> str:
        """Return the random key of this life of the slot."""
        return self._memory[_KEY : _KEY + 8].hex()

    def put_mask(self, mask: bytes | bytearray) -> None:
        """Write a mask in the format of the rows, for the stepper to copy."""
        self._memory[_MASK : _MASK + len(mask)] = mask

    def mask(self, num_bytes: int) -> memoryview:
        """Return the mask of the latest response, in place."""
        return self._view[_MASK : _MASK + num_bytes]

    # The stepper's end.

    def send_request(self, request: bytes, *, detached: bool = False) -> None:
        """Write a request and wake the worker. The caller has read the previous response.

        `detached`: as after `detach`, from the beginning.
        """
        self.put_request(request, detached=detached)
        self._words.wake(_REQUEST)

    def put_request(self, request: bytes, *, detached: bool = False) -> None:
        """Write a request for a guest in a pool. The worker wakes when the stepper rings the pool's bell."""
        self._memory[_REQUEST_BYTES : _REQUEST_BYTES + len(request)] = request
        number = (self._words.load(_NUMBER) + 1) & _NUMBER_MAX
        self._words.store(_NUMBER, number)
        if detached:
            self._words.store(_DETACHED, number)
        self._words.store(_RESPONSE, 0)
        self._words.store(_MID_STARTED, 0)
        self._words.store(_REQUEST, len(request))

    def ring(self, by: slice = BY_STEPPER) -> None:
        """Wake the pool in this slot after requests for guests of the pool (`workers/pool_process.py`)."""
        count = int.from_bytes(self._memory[by], "little") + 1
        self._words.fence()  # the pool that sees the ring sees the requests
        self._memory[by] = count.to_bytes(4, "little")[: by.stop - by.start]
        self._words.wake(_BELL)

    def wait_response(self, deadline: float) -> bytes | None:
        """Wait until `deadline` (time.monotonic()) for the response.

        Return the response, empty bytes when the worker is gone, None when the deadline has passed.
        """
        length = self._words.wait_while(_RESPONSE, 0, deadline)
        if length == 0:
            return None
        if length == _DEAD:
            return b""
        return self._memory[_RESPONSE_BYTES : _RESPONSE_BYTES + length]

    def wait_response_in_pool(self, pool: "WorkerSlot", deadline: float) -> bytes | None:
        """As `wait_response`, for a guest in the pool with the slot `pool`, which announces many responses at once."""
        while True:
            seen = pool.num_answered()
            response = self.wait_response(0.0)
            if response is not None or not pool.wait_answered(seen, deadline):
                return response

    def num_answered(self) -> int:
        """Return how often the pool of this slot has announced responses."""
        return self._words.load(_ANSWERED)

    def wait_answered(self, seen: int, deadline: float) -> bool:
        """Wait until `num_answered` differs from `seen`. Return False when `deadline` has passed."""
        return self._words.wait_while(_ANSWERED, seen, deadline) != seen

    def request_leave(self) -> None:
        """Tell the pool to drop the guest of this slot."""
        self._words.store(_LEAVE, 1)

    def num_guests(self) -> int:
        """Return the number of guests of the pool in this slot."""
        return self._words.load(_GUESTS)

    def has_answered(self) -> bool:
        """Return whether there was a request, and the latest has a response."""
        return self._words.load(_NUMBER) != 0 and self._words.load(_RESPONSE) != 0

    def mark_dead(self) -> None:
        """End every wait for a response. A response already written stays."""
        self._words.store(_GONE, 1)
        self._words.fence()  # either this process sees no response here, or the loop in C sees the word above
        if self._words.load(_RESPONSE) == 0:
            self._words.store(_RESPONSE, _DEAD)
        self._words.wake(_RESPONSE)

    def mark_alive(self) -> None:
        """Begin the life of a worker in a slot whose earlier worker may have died before the first request."""
        self._words.store(_GONE, 0)

    def cancel(self) -> None:
        """Ask the worker to interrupt the latest request; CANCEL_SIGNAL must follow."""
        self._words.store(_CANCELLED, self._words.load(_NUMBER))

    def detach(self, deadline: float) -> bool:
        """Forbid the worker to write the mask of the latest request, whenever the worker runs again.

        In the next step the mask row belongs to another sequence. A worker in the middle of writing is therefore waited
        for, until the response. Return False when `deadline` passes before the response.
        """
        number = self._words.load(_NUMBER)
        self._words.store(_DETACHED, number)
        self._words.fence()
        while self._words.load(_WRITING) == number and self._words.load(_RESPONSE) == 0:
            if time.monotonic() > deadline:
                return False
            time.sleep(_DETACH_POLL_S)
        return True

    def mid_started(self) -> float | None:
        """Return the start of the latest request's mid phase (time.monotonic()), or None before the start."""
        started = self._words.load(_MID_STARTED)
        now = time.monotonic()
        return now - ((_milliseconds(now) - started) & _MILLISECONDS_MAX) / 1000 if started else None

    def computes_mask_in_pre(self) -> bool:
        """Return whether the guest computes its mask in the pre phase."""
        return self._words.load(_MASK_IN_PRE) != 0

    # The worker's end.

    def set_computes_mask_in_pre(self) -> None:
        """Announce a guest with masks in the pre phase. To be called before the guest is announced."""
        self._words.store(_MASK_IN_PRE, 1)

    def wait_request(self) -> bytes:
        """Wait for a request and take the request out."""
        length = self._words.wait_while(_REQUEST, 0)
        request = self._memory[_REQUEST_BYTES : _REQUEST_BYTES + length]
        self._words.store(_REQUEST, 0)
        return request

    def has_request(self) -> bool:
        """Return whether a request waits."""
        return self._words.load(_REQUEST) != 0

    def has_started_mid(self) -> bool:
        """Return whether the mid phase of the request has started."""
        return self._words.load(_MID_STARTED) != 0

    def start_mid(self) -> None:
        """Record that the mid phase of the request starts now."""
        self._words.store(_MID_STARTED, _milliseconds(time.monotonic()) or 1)

    def wait_bell(self, heard: int) -> int:
        """Wait until the bell's count differs from `heard`; return the count, for the next call."""
        return self._words.wait_while(_BELL, heard)

    def send_response(self, response: bytes) -> None:
        """Write the response and wake the stepper."""
        self.put_response(response)
        self._words.wake(_RESPONSE)

    def put_response(self, response: bytes) -> None:
        """Write the response of a guest in a pool. The stepper wakes at `announce_responses` of the pool's slot."""
        self._memory[_RESPONSE_BYTES : _RESPONSE_BYTES + len(response)] = response
        self._words.store(_RESPONSE, len(response))

    def announce_responses(self) -> None:
        """Wake a stepper in wait for responses of the pool."""
        self._words.store(_ANSWERED, (self._words.load(_ANSWERED) + 1) & _COUNT_MAX)
        self._words.wake(_ANSWERED)

    def is_leaving(self) -> bool:
        """Return whether the stepper has asked the guest to leave its pool."""
        return self._words.load(_LEAVE) != 0

    def tell_guests(self, num_guests: int) -> None:
        """Tell the side process how many guests the pool of this slot has."""
        self._words.store(_GUESTS, num_guests)

    def is_cancelled(self) -> bool:
        """Return whether the stepper wants the latest request interrupted."""
        number = self._words.load(_NUMBER)
        return number != 0 and self._words.load(_CANCELLED) == number

    def is_detached(self) -> bool:
        """Return whether the worker must not write the mask of the latest request."""
        number = self._words.load(_DETACHED)
        return number != 0 and self._words.load(_NUMBER) == number

    def start_mask_write(self) -> bool:
        """Return whether the worker may write the mask. If so, the stepper waits for the response."""
        if self.is_detached():
            return False  # without the words below: a stepper must not wait for a worker of low priority
        self._words.store(_WRITING, self._words.load(_NUMBER))
        self._words.fence()  # either the stepper sees the word above, or the worker sees the word below
        if self.is_detached():
            self._words.store(_WRITING, 0)
            return False
        return True


def _milliseconds(now: float) -> int:
    return int(now * 1000) & _MILLISECONDS_MAX
