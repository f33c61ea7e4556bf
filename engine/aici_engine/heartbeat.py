"""The engine's heartbeat: the number of the loop's turns, and how long the work of now may take, in shared memory.

Another process reads the page and decides whether the engine hangs. No thread beats: only the loop's progress does.
"""

import mmap
import struct
import time
from typing import Final, NamedTuple

PAGE_BYTES: Final = mmap.PAGESIZE
_FORM: Final = struct.Struct("<QdQ")
_FACTOR: Final = 10.0
"""A forward pass may take so many times as long as earlier passes let expect."""
_STEP_TOKENS: Final = 16
"""A pass takes as long as a pass of so many tokens, and then some time for each token."""
_SLOW_BYTES_PER_S: Final = 1e10
"""Before the first pass: the weights that the slowest machine passes for a token in a second."""


class Beat(NamedTuple):
    """`number`: turns of the loop, and forward passes. `allowed_s`: processor time allowed for the present work.
    `waits`: other machines do the work, so this process may sleep."""

    number: int
    allowed_s: float
    waits: bool

    @classmethod
    def read(cls, page: "mmap.mmap | bytearray") -> "Beat":
        """Return the beat in a page."""
        number, allowed_s, waits = _FORM.unpack_from(page)
        return cls(number, allowed_s, bool(waits))


class Heartbeat:
    """Written by the engine's thread. `page`: shared memory of PAGE_BYTES bytes; None keeps the beat to itself.

    `weight_bytes`, `waits`: of the executor, set before the first pass.
    """

    def __init__(self, page: "mmap.mmap | None" = None) -> None:
        self._page: mmap.mmap | bytearray = bytearray(_FORM.size) if page is None else page
        self._number = 0
        self._slowest_s = 0.0
        self._began = 0.0
        self._size = 0
        self.weight_bytes = 0
        self.waits = False

    def beat(self) -> None:
        """Record a turn of the loop."""
        self._number += 1
        _FORM.pack_into(self._page, 0, self._number, 0.0, 0)

    def compute(self, num_tokens: int) -> None:
        """Record that a forward pass begins."""
        self._size = num_tokens + _STEP_TOKENS
        slowest_s = self._slowest_s or self.weight_bytes / _SLOW_BYTES_PER_S
        self._number += 1
        _FORM.pack_into(self._page, 0, self._number, _FACTOR * self._size * slowest_s, self.waits)
        self._began = time.perf_counter()

    def computed(self) -> None:
        """Record that the forward pass has ended."""
        self._slowest_s = max(self._slowest_s, (time.perf_counter() - self._began) / self._size)
        self.beat()
