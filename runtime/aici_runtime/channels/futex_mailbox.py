"""A mailbox under a futex word.

    offset 0          u32 word, then payload: from the engine to the runtime
    offset size / 2   u32 word, then payload: from the runtime to the engine

A channel has a region per direction although a region has both halves: `cmd` uses the first half only, `resp` the
second only. A word is EMPTY, WRITING, or the length of the following message.

No wake-up is lost. In any state, a single side may change the word: the sender changes EMPTY and WRITING, the receiver
changes a length. The receiver sleeps only on EMPTY or WRITING, and the kernel compares the word again before the sleep.
So a length stored before the comparison keeps the receiver awake, and a length stored afterwards is followed by a wake.
(WRITING is stored without a wake: a receiver asleep on EMPTY sleeps on until the length comes.)

A sender that finds a length polls: after 50 µs, then after as long as it has waited so far, at most every 0.1 s. The
protocol has no wake after EMPTY; the wake would slow every message down for the rare case of a full mailbox.

No message is lost or torn. The sender writes the payload before the length, the receiver copies the payload before
EMPTY, and `Futex` keeps the order on every processor.

A sender that finds WRITING continues as with EMPTY. A mailbox has a single sender, so WRITING can only come from a
predecessor that died in the middle of a message.
"""

import os
import time
from collections.abc import Callable
from typing import Literal

from aici_base.errors import UsageError
from aici_runtime.channels.mailbox import MIN_CORES_TO_SPIN, REPAIR_S, Direction, MessageTooLargeError
from aici_runtime.memory.futex import Futex
from aici_runtime.memory.shm import Region

_EMPTY, _WRITING = 0, 0xFFFFFFFF
_NO_MESSAGE = (_EMPTY, _WRITING)
_MIN_REGION_BYTES = 8192
_PAYLOAD_AT = 4
_OVERHEAD_BYTES = 16
_FIRST_PAUSE_S, _LAST_PAUSE_S = 50e-6, 0.1


class FutexMailbox:
    """See `Mailbox`. A message has at least one byte. Owns the mapping."""

    def __init__(self, memory: Region, direction: Direction) -> None:
        if len(memory) <= _MIN_REGION_BYTES or len(memory) % 8:
            raise UsageError(
                f"a channel of {len(memory)} bytes is too small for futexes",
                hint=f"it needs more than {_MIN_REGION_BYTES} bytes, and a multiple of 8",
            )
        self._memory = memory
        self._at = 0 if direction == "cmd" else len(memory) // 2
        self._max_bytes = len(memory) // 2 - _OVERHEAD_BYTES
        self._words = Futex(memory)
        self._useless = False

    def check_fits(self, message: bytes) -> None:
        if len(message) > self._max_bytes:
            raise MessageTooLargeError(f"msg too large; {len(message)} > {self._max_bytes}")
        if not message:
            raise ValueError("an empty message cannot be told from none")

    def send(self, message: bytes) -> None:
        self.check_fits(message)
        pause_s = _FIRST_PAUSE_S
        while (word := self._words.load(self._at)) not in _NO_MESSAGE and not self._useless:
            self._words.wait_while(self._at, word, time.monotonic() + pause_s)
            pause_s = min(2 * pause_s, _LAST_PAUSE_S)
        self._words.store(self._at, _WRITING)
        start = self._at + _PAYLOAD_AT
        self._memory[start : start + len(message)] = message
        self._words.store(self._at, len(message))
        self._words.wake(self._at)

    def receive(self, busy_wait_ms: int = 0, accept: Callable[[bytes], None] | None = None) -> bytes:
        length = self._wait_for_length(busy_wait_ms)
        start = self._at + _PAYLOAD_AT
        # A hostile or broken length must not read past the half. The rest is not JSON and is refused as such.
        message = self._memory[start : start + min(length, self._max_bytes)]
        if accept is not None:
            accept(message)
        self._words.store(self._at, _EMPTY)
        return message

    def _wait_for_length(self, busy_wait_ms: int) -> int:
        if busy_wait_ms and (os.cpu_count() or 1) >= MIN_CORES_TO_SPIN:
            deadline = time.monotonic() + busy_wait_ms / 1000
            while self._words.load(self._at) in _NO_MESSAGE and time.monotonic() < deadline:
                pass
        word = self._words.load(self._at)
        while word in _NO_MESSAGE:
            word = self._words.wait_while(self._at, word)
        return word

    def repair(self, end: Literal["reading", "writing"], patience_s: float = REPAIR_S) -> None:
        """Nothing to repair: a reader leaves the length in place, and a sender ignores WRITING."""

    def wake_everyone(self) -> None:
        # The order matters. A sender polls and sees the flag; a receiver needs a length to return.
        self._useless = True
        if self._words.load(self._at) in _NO_MESSAGE:
            self._words.store(self._at, 1)
        self._words.wake(self._at)

    def close(self) -> None:
        self._words.close()
        self._memory.close()
