"""One message at a time, in one direction, over shared memory: what both synchronizations have in common."""

from collections.abc import Callable
from typing import Literal, Protocol

MIB = 1024 * 1024

MIN_CORES_TO_SPIN = 8
"""With both ends on one core each spin burns its whole time before the other end gets to run."""

Direction = Literal["cmd", "resp"]
Side = Literal["", "-side"]
Sync = Literal["semaphore", "futex"]


REPAIR_S = 2.0
"""Nobody who lives holds a mailbox for that long."""


class MessageTooLargeError(ValueError):
    """The peer is told so in words that the protocol fixes."""


class Mailbox(Protocol):
    """Each end is used by one thread at a time. Signals interrupt nothing: handlers run, and the wait goes on."""

    def check_fits(self, message: bytes) -> None:
        """Raises MessageTooLargeError."""

    def send(self, message: bytes) -> None:
        """Blocks while the previous message is unread. Raises MessageTooLargeError before it touches anything."""

    def receive(self, busy_wait_ms: int = 0, accept: Callable[[bytes], None] | None = None) -> bytes:
        """Blocks for a message. `busy_wait_ms` spins first, on machines with 8 cores or more only. `accept` is called
        before the message is taken out: who is killed before that leaves it to its replacement."""

    def repair(self, end: Literal["reading", "writing"], patience_s: float = REPAIR_S) -> None:
        """To be called by the replacement of a process that was killed at that end, before anything else."""

    def wake_everyone(self) -> None:
        """Let a blocked sender and a blocked receiver of this process return, for a peer that died. The mailbox is
        useless after it: what `receive` returns is no message."""

    def close(self) -> None:
        """Unmaps; names are unlinked apart from it. Nobody may be waiting."""
