"""How the C library's allocator treats large blocks."""

import contextlib
import ctypes
from collections.abc import Iterator
from typing import Final

_M_MMAP_THRESHOLD: Final = -3
_WHILE_LOADING: Final = 1 << 20
_AFTERWARDS: Final = 32 << 20
"""glibc's own limit: it raises the threshold up to here as a process frees larger and larger blocks."""


@contextlib.contextmanager
def large_blocks_returned() -> Iterator[None]:
    """Give blocks from 1 MiB on back to the operating system as soon as they are freed.

    Loading a model allocates and frees many tensors of some MiB. Without this, they leave holes in glibc's heap, and a
    process holds twice the memory of its weights, or more. Does nothing on another C library.
    """
    library = ctypes.CDLL(None)
    if not hasattr(library, "mallopt") or not hasattr(library, "malloc_trim"):
        yield
        return
    library.mallopt(_M_MMAP_THRESHOLD, _WHILE_LOADING)
    try:
        yield
    finally:
        library.mallopt(_M_MMAP_THRESHOLD, _AFTERWARDS)
        library.malloc_trim(0)
