"""The memory of a worker slot during one life: a file in memory, for the stepper and a single worker.

Every worker gets a new file. So a worker can reach no other worker's messages, neither of the present nor of the past,
and a process left behind by a worker cannot reach the next worker of the slot.
"""

import ctypes
import fcntl
import os
from mmap import MAP_ANONYMOUS, MAP_PRIVATE, MAP_SHARED, PROT_READ, PROT_WRITE, mmap

from aici_runtime.memory.futex import Futex

_F_ADD_SEALS, _SIZE_IS_FIXED = 1033, 0x1 | 0x2 | 0x4
_MAP_FIXED = 0x10
_libc = ctypes.CDLL(None, use_errno=True)
_libc_mmap = ctypes.CFUNCTYPE(
    ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_int64,
    use_errno=True,
)(("mmap", _libc))  # fmt: skip
_unmapped: list[mmap] = []
"""Kept for ever: Python would unmap them once more, and by then other memory may be there."""


class SlotMemory:
    """Owns the mapping, and `descriptor` until `close_descriptor`: -1 where the file belongs to somebody else."""

    def __init__(self, size_bytes: int, descriptor: int = -1) -> None:
        """Map the file of this size. Without a file, the memory belongs to this process alone."""
        self.descriptor = -1
        # An anonymous mapping owns the addresses, and the file is mapped over it: Python keeps a copy of the descriptor
        # of a file that it maps itself.
        self.memory = mmap(-1, size_bytes, flags=MAP_PRIVATE | MAP_ANONYMOUS)
        if descriptor >= 0:
            address = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
            flags = MAP_SHARED | _MAP_FIXED
            if _libc_mmap(address, size_bytes, PROT_READ | PROT_WRITE, flags, descriptor, 0) != address:
                raise OSError(ctypes.get_errno(), "the memory of a worker slot cannot be mapped")
        self.words = Futex(self.memory)
        self.view = memoryview(self.memory)

    @classmethod
    def create(cls, size_bytes: int) -> "SlotMemory":
        """Make the file, whose size nobody can change, and map the file."""
        descriptor = os.memfd_create("aici-slot", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(descriptor, size_bytes)
            fcntl.fcntl(descriptor, _F_ADD_SEALS, _SIZE_IS_FIXED)
            created = cls(size_bytes, descriptor)
        except BaseException:
            os.close(descriptor)
            raise
        created.descriptor = descriptor
        return created

    def close_descriptor(self) -> None:
        """Close the descriptor, after the worker has got it. Idempotent."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    def unmap(self) -> None:
        """Unmap the memory in a fork that must not reach it; its other users in this process are never used again."""
        unmap(self.memory)


def unmap(memory: mmap) -> None:
    """Unmap a shared memory for good in a fork, whatever views the fork has inherited. Nobody may use them again."""
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    _libc.munmap(ctypes.c_void_p(address), ctypes.c_size_t(len(memory)))
    _unmapped.append(memory)
