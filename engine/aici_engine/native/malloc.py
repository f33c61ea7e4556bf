"""How the C library's allocator treats large blocks."""

import contextlib
import ctypes
from collections.abc import Iterator
from typing import Final

_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_LARGE: Final = 4 << 20
_KEPT: Final = 8 << 20
_LARGE_AFTERWARDS: Final = 32 << 20
_KEPT_AFTERWARDS: Final = 64 << 20
"""glibc's own limits: it raises both thresholds up to here as a process frees larger and larger blocks."""


@contextlib.contextmanager
def large_blocks_returned() -> Iterator[None]:
    """Give blocks from 4 MiB on back to the operating system as soon as they are freed, and the rest at the end.

    Loading a model allocates and frees many tensors of some MiB. By default, the tensors leave holes in glibc's heap,
    and a process holds twice the memory of the weights, or more. Does nothing on another C library.
    """
    library = ctypes.CDLL(None)
    if not hasattr(library, "mallopt") or not hasattr(library, "malloc_trim"):
        yield
        return
    # Once a threshold is set, glibc changes neither: with the second at 128 KiB, each free at the end of a heap would
    # give memory back that the next tensor asks for again.
    library.mallopt(_M_TRIM_THRESHOLD, _KEPT)
    library.mallopt(_M_MMAP_THRESHOLD, _LARGE)
    try:
        yield
    finally:
        library.mallopt(_M_TRIM_THRESHOLD, _KEPT_AFTERWARDS)
        library.mallopt(_M_MMAP_THRESHOLD, _LARGE_AFTERWARDS)
        library.malloc_trim(0)
