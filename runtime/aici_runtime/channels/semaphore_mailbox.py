"""A mailbox under named semaphores.

A region holds one message: u32 length, then as many bytes of UTF-8 JSON. The semaphore `-wr` (initially 1) permits
writing, `-rd` (initially 0) reading. A sender never spins; a receiver spins only on demand.
"""

import contextlib
import ctypes
import os
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass
from mmap import mmap
from typing import Literal, NamedTuple

import posix_ipc

from aici_runtime.channels.mailbox import (
    MIN_CORES_TO_SPIN,
    REPAIR_S,
    Direction,
    Mailbox,
    MessageTooLargeError,
    Side,
)
from aici_runtime.memory import shm

_HEADER = struct.Struct("<I")

_libc = ctypes.CDLL(None)
_libc.sem_open.restype = ctypes.c_void_p
_libc.sem_open.argtypes = [ctypes.c_char_p, ctypes.c_int]
_libc.sem_close.argtypes = [ctypes.c_void_p]
_try = ctypes.PyDLL(None).sem_trywait
_try.argtypes = [ctypes.c_void_p]


@dataclass(frozen=True, slots=True)
class SemaphoreNames:
    """The names of the shared objects of a mailbox."""

    region: str
    writer: str
    reader: str

    @classmethod
    def of(cls, prefix: str, direction: Direction, side: Side) -> "SemaphoreNames":
        """Return the names for a prefix, a direction and a channel."""
        stem = f"{prefix}{direction}{side}"
        return cls(region=f"{stem}-shm", writer=f"{stem}-wr", reader=f"{stem}-rd")


class MailboxAddresses(NamedTuple):
    """A mailbox for code in C: the region with its size in bytes, and the two semaphores."""

    memory: int
    size_bytes: int
    writable: int
    readable: int


class SemaphoreMailbox:
    """See `Mailbox`."""

    def __init__(
        self,
        memory: mmap,
        writable: posix_ipc.Semaphore,
        readable: posix_ipc.Semaphore,
        addresses: tuple[int, int] | None = None,
    ) -> None:
        """`addresses`: of `writable` and `readable`, opened once more for code in C; 0 where that failed."""
        self._memory = memory
        self._writable = writable
        self._readable = readable
        self._writable_at, self._readable_at = addresses or (0, 0)

    @classmethod
    def create(cls, names: SemaphoreNames, size_bytes: int) -> "SemaphoreMailbox":
        """Create the objects, as the engine."""
        return cls(
            shm.create_region(names.region, size_bytes),
            shm.create_semaphore(names.writer, 1),
            shm.create_semaphore(names.reader, 0),
            (_address(names.writer), _address(names.reader)),
        )

    @classmethod
    def attach(cls, names: SemaphoreNames, size_bytes: int) -> "SemaphoreMailbox":
        """Attach to the objects, as the runtime."""
        return cls(
            shm.attach_region(names.region, size_bytes),
            shm.attach_semaphore(names.writer, 1),
            shm.attach_semaphore(names.reader, 0),
            (_address(names.writer), _address(names.reader)),
        )

    @staticmethod
    def unlink(names: SemaphoreNames) -> None:
        """Remove the names."""
        shm.unlink_region(names.region)
        shm.unlink_semaphore(names.writer)
        shm.unlink_semaphore(names.reader)

    def check_fits(self, message: bytes) -> None:
        if len(message) + _HEADER.size > len(self._memory):
            raise MessageTooLargeError(f"msg too large; {len(message)} + 4 > {len(self._memory)}")

    def send(self, message: bytes) -> None:
        self.check_fits(message)
        _take(self._writable, self._writable_at)
        self._memory[4 : 4 + len(message)] = message
        _HEADER.pack_into(self._memory, 0, len(message))
        self._readable.release()

    def receive(self, busy_wait_ms: int = 0, accept: Callable[[bytes], None] | None = None) -> bytes:
        if not (busy_wait_ms and _spin(self._readable, busy_wait_ms)):
            _take(self._readable, self._readable_at)
        (length,) = _HEADER.unpack_from(self._memory, 0)
        # A hostile or broken length must not read past the region. The rest is not JSON and is refused as such.
        message = self._memory[4 : 4 + length]
        if accept is not None:
            accept(message)
        _HEADER.pack_into(self._memory, 0, 0)
        self._writable.release()
        return message

    def repair(self, end: Literal["reading", "writing"], patience_s: float = REPAIR_S) -> None:
        """Release the semaphore that a killed process held.

        At rest, a single semaphore is 1. During a copy, both are 0: for a moment if the other end copies, for ever if
        the dead process did. So 0 and 0 throughout `patience_s` mean a dead process. A dead reader left the message in
        place unless the length is 0. A dead writer had not handed the message over; the replacement writes again.
        """
        deadline = time.monotonic() + patience_s
        while self._writable.value == 0 and self._readable.value == 0:
            if time.monotonic() > deadline:
                is_there = end == "reading" and _HEADER.unpack_from(self._memory) != (0,)
                (self._readable if is_there else self._writable).release()
                return
            time.sleep(0.01)

    def wake_everyone(self) -> None:
        self._writable.release()
        self._readable.release()

    def addresses(self) -> "MailboxAddresses | None":
        """Return the addresses, valid until `close`; None if a semaphore cannot be opened once more."""
        if not (self._writable_at and self._readable_at):
            return None
        memory = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        return MailboxAddresses(memory, len(self._memory), self._writable_at, self._readable_at)

    def close(self) -> None:
        self._memory.close()
        self._writable.close()
        self._readable.close()
        for address in filter(None, (self._writable_at, self._readable_at)):
            _libc.sem_close(address)
        self._writable_at = self._readable_at = 0


def addresses_of(requests: Mailbox, responses: Mailbox) -> tuple[MailboxAddresses, MailboxAddresses] | None:
    """Return the addresses of both mailboxes of a channel, for code in C; None for mailboxes without semaphores."""
    if not (isinstance(requests, SemaphoreMailbox) and isinstance(responses, SemaphoreMailbox)):
        return None
    asked, answered = requests.addresses(), responses.addresses()
    return None if asked is None or answered is None else (asked, answered)


def _address(name: str) -> int:
    """Return the address of a named semaphore that this process has opened already; 0 on failure. `sem_close` must
    follow: libc counts the openings."""
    return _libc.sem_open(name.encode(), 0) or 0


def _take(semaphore: posix_ipc.Semaphore, address: int) -> None:
    """Wait for the semaphore. An open semaphore is taken with the GIL held: to get a released GIL back may take
    milliseconds."""
    if not (address and _try(address) == 0):
        _wait(semaphore)


def _wait(semaphore: posix_ipc.Semaphore) -> None:
    while True:
        with contextlib.suppress(posix_ipc.SignalError):  # EINTR, after Python ran its signal handlers
            semaphore.acquire()
            return


def _spin(semaphore: posix_ipc.Semaphore, busy_wait_ms: int) -> bool:
    if (os.cpu_count() or 1) < MIN_CORES_TO_SPIN:
        return False
    deadline = time.monotonic() + busy_wait_ms / 1000
    while time.monotonic() < deadline:
        with contextlib.suppress(posix_ipc.BusyError):
            semaphore.acquire(0)
            return True
    return False
