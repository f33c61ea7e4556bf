"""The threads of the kernels, and their scratch memory."""

import ctypes

import numpy as np

_ALIGNED = 64


class ThreadPool:
    """The threads of one model. One caller at a time; the threads end when the pool is deleted."""

    def __init__(self, library: ctypes.CDLL, num_threads: int) -> None:
        self.library = library
        self.pointer: int = library.aici_pool_new(num_threads)
        if not self.pointer:
            raise MemoryError("no memory for the kernels' threads")
        self._memory = np.empty(0, np.uint8)

    def __del__(self) -> None:
        if pointer := getattr(self, "pointer", None):
            self.library.aici_pool_free(pointer)

    def scratch(self, num_bytes: int) -> int:
        """Return the address of `num_bytes` bytes, aligned to 64. The next call reuses the memory."""
        if self._memory.size < num_bytes + _ALIGNED:
            self._memory = np.empty(num_bytes + _ALIGNED, np.uint8)
        return -(-self._memory.ctypes.data // _ALIGNED) * _ALIGNED
