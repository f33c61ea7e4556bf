"""The kernels' threads, and the memory that they compute in."""

import ctypes

import torch

_ALIGNED = 64


class ThreadPool:
    """Of one model: used by one thread at a time. The threads end with it."""

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
        """The address of so many bytes; what is in them is nobody's."""
        if self._memory.numel() < num_bytes + _ALIGNED:
            self._memory = torch.empty(num_bytes + _ALIGNED, dtype=torch.uint8)
        return -(-self._memory.data_ptr() // _ALIGNED) * _ALIGNED
