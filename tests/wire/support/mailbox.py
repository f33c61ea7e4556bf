"""The four mailboxes of an engine, in both synchronizations, written from the description of the protocol alone.

semaphores  {name}-shm   u32 length, payload              {name}-wr (1) before writing, {name}-rd (0) before reading
futex       {name}       two halves; word 0 is empty, 0xFFFFFFFF being written, else the payload's length
"""

import ctypes
import mmap
import os
import platform
import struct
import time
from collections.abc import Callable
from typing import Protocol

import posix_ipc

MIB = 1 << 20
PATIENCE_S = 20.0
"""A test that waits longer than this reports a hang."""

_WORD = struct.Struct("<I")
_WRITING = 0xFFFFFFFF
_SYS_FUTEX = {"x86_64": 202, "aarch64": 98}[platform.machine()]
_WAIT, _WAKE = 0, 1
_libc = ctypes.CDLL(None, use_errno=True)


class Mailbox(Protocol):
    """`memory`: the whole region. `send` and `receive` use the part from `start`."""

    memory: mmap.mmap
    start: int

    def send(self, payload: bytes) -> None: ...
    def receive(self, patience_s: float = PATIENCE_S) -> bytes: ...
    def close(self) -> None: ...


def until(holds: Callable[[], bool], patience_s: float = PATIENCE_S) -> None:
    """Wait for a condition that the other side fulfils at any time."""
    deadline = time.monotonic() + patience_s
    while not holds():
        assert time.monotonic() < deadline, "it does not come about"
        time.sleep(0.001)


def create_region(name: str, size: int) -> mmap.mmap:
    shared = posix_ipc.SharedMemory(name, posix_ipc.O_CREX, size=size)
    try:
        return mmap.mmap(shared.fd, size)
    finally:
        shared.close_fd()


def exists(name: str) -> bool:
    """Whether a region (`/x`) or semaphore (`/sem.x`) of this name exists."""
    return os.path.exists(f"/dev/shm{name}")


def unlink(name: str) -> None:
    """Remove a region, or with the prefix `/sem.` a semaphore; a missing name is no error."""
    if exists(name):
        os.unlink(f"/dev/shm{name}")


class SemaphoreBox:
    start = 0

    def __init__(self, name: str, size: int) -> None:
        self.name = name
        self.memory = create_region(f"{name}-shm", size)
        self.writable = posix_ipc.Semaphore(f"{name}-wr", posix_ipc.O_CREX, initial_value=1)
        self.readable = posix_ipc.Semaphore(f"{name}-rd", posix_ipc.O_CREX, initial_value=0)

    def send(self, payload: bytes) -> None:
        self.send_frame(_WORD.pack(len(payload)) + payload)

    def send_frame(self, frame: bytes) -> None:
        """Write raw bytes to the memory; the length word may lie."""
        self.writable.acquire(PATIENCE_S)
        self.memory[: len(frame)] = frame
        self.readable.release()

    def receive(self, patience_s: float = PATIENCE_S) -> bytes:
        self.readable.acquire(patience_s)
        (length,) = _WORD.unpack_from(self.memory)
        payload = self.memory[4 : 4 + length]
        self.writable.release()
        return payload

    def close(self) -> None:
        self.memory.close()
        for semaphore in (self.writable, self.readable):
            semaphore.close()
        for name in (f"{self.name}-shm", f"/sem.{self.name[1:]}-wr", f"/sem.{self.name[1:]}-rd"):
            unlink(name)


class FutexBox:
    """`is_response`: the runtime writes, to the second half."""

    def __init__(self, name: str, size: int, *, is_response: bool) -> None:
        self.name = name
        self.memory = create_region(name, size)
        self.start = size // 2 if is_response else 0
        self.room = size // 2 - 16
        self._word = ctypes.c_uint32.from_buffer(self.memory, self.start)

    def send(self, payload: bytes) -> None:
        assert len(payload) <= self.room
        deadline = time.monotonic() + PATIENCE_S
        while self._word.value != 0:
            assert time.monotonic() < deadline, "the runtime does not read"
            time.sleep(0.0002)
        self._word.value = _WRITING
        self.memory[self.start + 4 : self.start + 4 + len(payload)] = payload
        self.set_word(len(payload))

    def set_word(self, value: int) -> None:
        self._word.value = value
        self.wake()

    def wake(self) -> None:
        _libc.syscall(_SYS_FUTEX, ctypes.byref(self._word), _WAKE, 0x7FFFFFFF, None, None, 0)

    def receive(self, patience_s: float = PATIENCE_S) -> bytes:
        deadline = time.monotonic() + patience_s
        while (length := self._word.value) in (0, _WRITING):
            if (left := deadline - time.monotonic()) <= 0:
                raise posix_ipc.BusyError("no message")
            timeout = struct.pack("<qq", int(left), int(left % 1 * 1e9))
            _libc.syscall(_SYS_FUTEX, ctypes.byref(self._word), _WAIT, length, timeout, None, 0)
        payload = self.memory[self.start + 4 : self.start + 4 + length]
        self._word.value = 0
        return payload

    def close(self) -> None:
        del self._word
        self.memory.close()
        unlink(self.name)
