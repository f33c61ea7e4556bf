"""Arrays of numbers that pass through the engine without being computed with.

Two libraries make them: numpy where the kernels run the model, torch where torch runs the model. The parts between
(loop, executor, storage of pages, pipeline) only slice, copy and hand on, in ways that both libraries know. numpy has
no bf16: on the kernels' path an array of bf16 holds the 16 bits of each number as uint16.
"""

import ctypes
import mmap
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = Any
"""A numpy array or a tensor of torch. Any, because this module must not import torch."""

BF16_BITS: Final = np.dtype(np.uint16)
"""The type of an array that holds the bits of bf16 numbers."""


def reserve(shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Return an array of zeros in pages of its own. A page costs physical memory from its first write on, and goes back
    to the system with the array."""
    dtype = np.dtype(dtype)
    count = int(np.prod(shape, dtype=np.int64))
    if not count:
        return np.zeros(shape, dtype)
    memory = mmap.mmap(-1, count * dtype.itemsize, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    return np.frombuffer(memory, dtype).reshape(shape)


def discard(array: Array, first: int, end: int) -> None:
    """Give the memory of rows `first` to `end - 1` back to the system, as far as they fill pages of the system.

    `array`: contiguous, on the CPU. The contents of the rows are lost.
    """
    row_bytes = array.nbytes // len(array)
    start = -(-(address_of(array) + first * row_bytes) // mmap.PAGESIZE) * mmap.PAGESIZE
    size = (address_of(array) + end * row_bytes) // mmap.PAGESIZE * mmap.PAGESIZE - start
    if size > 0:
        ctypes.CDLL(None).madvise(ctypes.c_void_p(start), ctypes.c_size_t(size), mmap.MADV_DONTNEED)


def address_of(array: Array) -> int:
    """Return the address of the first number."""
    return int(array.ctypes.data if isinstance(array, np.ndarray) else array.data_ptr())


def bytes_of(array: Array) -> memoryview:
    """Return the bytes of an array, without a copy if the array is contiguous and in main memory."""
    if not isinstance(array, np.ndarray):
        import torch

        array = array.contiguous().cpu().flatten().view(torch.uint8).numpy()
    if not array.size:
        return memoryview(b"")
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def as_floats(array: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    """Return the numbers in f32; of an array in f32, the array itself. uint16 means the bits of bf16."""
    if array.dtype == BF16_BITS:
        return (array.astype(np.uint32) << 16).view(np.float32)
    return array.astype(np.float32, copy=False)


def as_bf16(array: npt.NDArray[Any]) -> npt.NDArray[np.uint16]:
    """Return the bits of the nearest bf16 numbers, ties to even; of an array of such bits, the array itself."""
    if array.dtype == BF16_BITS:
        return array
    floats = np.ascontiguousarray(as_floats(array))
    bits = floats.view(np.uint32)
    rounded = (bits + (0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)
    rounded[np.isnan(floats)] = 0x7FC0  # rounding could make an infinity of a NaN
    return rounded
