"""A mailbox: a single message at a time, in a fixed direction, over shared memory. Implemented with semaphores and
futexes."""

from collections.abc import Callable
from typing import Literal, Protocol

MIB = 1024 * 1024

MIN_CORES_TO_SPIN = 8
"""With both ends on the same core, a spin burns all its time before the other end runs."""

Direction = Literal["cmd", "resp"]
Side = Literal["", "-side"]
Sync = Literal["semaphore", "futex"]


REPAIR_S = 2.0
"""A live process never holds a mailbox for longer."""


class MessageTooLargeError(ValueError):
    """The protocol fixes the words of this message to the peer."""


class Mailbox(Protocol):
    """The seam of both implementations. An end is used by one thread at a time. A signal runs its handler, and the wait
    goes on."""

    def check_fits(self, message: bytes) -> None:
        """Raise MessageTooLargeError if the message does not fit."""

    def send(self, message: bytes) -> None:
        """Send a message; block while the previous message is unread. Raises MessageTooLargeError before any change."""

    def receive(self, busy_wait_ms: int = 0, accept: Callable[[bytes], None] | None = None) -> bytes:
        """Block for a message and return the message.

        `busy_wait_ms`: spin first, on machines with 8 cores or more. `accept` is called before the message is taken out
        of the mailbox, so a process killed before then leaves the message to the replacement.
        """

    def repair(self, end: Literal["reading", "writing"], patience_s: float = REPAIR_S) -> None:
        """Repair the mailbox in the replacement of a process killed at the given end, before any other call."""

    def wake_everyone(self) -> None:
        """End the waits of this process after the death of the peer. The mailbox is useless afterwards: `receive` may
        return anything."""

    def close(self) -> None:
        """Unmap the region; names are unlinked separately. Nobody may be waiting."""
