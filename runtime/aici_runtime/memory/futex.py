"""Wait for and wake on 32-bit words of a shared mapping: futex(2), not PRIVATE, because waiters are in other processes.

The kernel compares the word again before the sleep, so a wake between the comparison here and the sleep is never lost.
A process that loads a word sees all data written before the word was stored. x86 keeps this order by itself; on arm64 a
barrier precedes every store and follows every load.
"""

import ctypes
import errno
import platform
import time
from mmap import mmap
from struct import Struct

from aici_base.errors import UnavailableError

_SYSCALL = {"x86_64": 202, "aarch64": 98}
_WAIT, _WAKE = 0, 1
_EVERYONE = 2**31 - 1


_TIMESPEC = Struct("<2q")

# use_errno makes ctypes keep errno per thread; CDLL releases the GIL during the call.
_WAITING = ctypes.CDLL(None, use_errno=True)["syscall"]
# A wake never sleeps, so the call keeps the GIL.
_WAKING = ctypes.PyDLL(None)["syscall"]
_FENCE = ctypes.CDLL(None).getpagesize
"""A full barrier: stores before the call are visible before any load after the call. A foreign call releases and takes
the GIL: an unlock and a lock, with a full barrier; getpagesize is no system call."""


class Futex:
    """The words of a mapping, addressed by byte offset (a multiple of 4). The mapping outlives the object."""

    def __init__(self, memory: mmap) -> None:
        number = _SYSCALL.get(platform.machine())
        if number is None:
            raise UnavailableError(f"no futex on {platform.machine()}", hint="aici runs on Linux, x86-64 or arm64")
        self._words = memoryview(memory).cast("B").cast("I")
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        # No ctypes prototypes: the conversions would cost more than the calls. Values longer than an int are converted
        # here.
        self._number = ctypes.c_long(number)
        self._addresses: dict[int, ctypes.c_void_p] = {}
        self._wait, self._wake, self.fence = _WAITING, _WAKING, _FENCE
        self._barrier = None if platform.machine() == "x86_64" else self.fence

    def load(self, offset: int) -> int:
        """Return a word. Data written before the word was stored is visible afterwards."""
        word = self._words[offset >> 2]
        if self._barrier is not None:
            self._barrier()
        return word

    def store(self, offset: int, value: int) -> None:
        """Store a word, after all data written before."""
        if self._barrier is not None:
            self._barrier()
        self._words[offset >> 2] = value

    def wake(self, offset: int) -> None:
        """Wake all processes asleep on the word."""
        self._wake(self._number, self._addresses.get(offset) or self._address(offset), _WAKE, _EVERYONE)

    def _address(self, offset: int) -> ctypes.c_void_p:
        return self._addresses.setdefault(offset, ctypes.c_void_p(self.address + offset))

    def close(self) -> None:
        """Release the view of the mapping, so that the mapping can be closed. Nobody may be waiting."""
        self._words.release()

    def wait_while(self, offset: int, value: int, deadline: float | None = None) -> int:
        """Sleep until the word differs from `value` or `time.monotonic()` has passed `deadline`. Return the word."""
        while True:
            now = self.load(offset)
            if now != value:
                return now
            timeout = None
            if deadline is not None:
                left = deadline - time.monotonic()
                if left <= 0:
                    return value
                seconds = int(left)
                timeout = _TIMESPEC.pack(seconds, int((left - seconds) * 1e9))
            address = self._addresses.get(offset) or self._address(offset)
            if self._wait(self._number, address, _WAIT, value, timeout) != 0:
                code = ctypes.get_errno()
                if code not in (errno.EAGAIN, errno.EINTR, errno.ETIMEDOUT):
                    raise OSError(code, "futex wait")
