"""The threads of the kernels, and their scratch memory."""

import ctypes

import torch

_ALIGNED = 64


class ThreadPool:
    """The threads of one model. One caller at a time; the threads end when the pool is deleted."""

    def __init__(self, library: ctypes.CDLL, num_threads: int) -> None:
        self.library = library
        self.pointer: int = library.aici_pool_new(num_threads)
        if not self.pointer:
            raise MemoryError("no memory for the kernels' threads")
        self._memory = torch.empty(0, dtype=torch.uint8)

    def __del__(self) -> None:
        if pointer := getattr(self, "pointer", None):
            self.library.aici_pool_free(pointer)

    def scratch(self, num_bytes: int) -> int:
        """Return the address of `num_bytes` bytes, aligned to 64. The next call reuses the memory."""
        if self._memory.numel() < num_bytes + _ALIGNED:
            self._memory = torch.empty(num_bytes + _ALIGNED, dtype=torch.uint8)
        return -(-self._memory.data_ptr() // _ALIGNED) * _ALIGNED
