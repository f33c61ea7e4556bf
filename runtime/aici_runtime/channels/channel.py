"""The four mailboxes between an engine and the runtime: commands and responses, on the main and on the side channel."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import get_args

from aici_runtime.channels.futex_mailbox import FutexMailbox
from aici_runtime.channels.mailbox import MIB, Direction, Mailbox, MessageTooLargeError, Side, Sync
from aici_runtime.channels.semaphore_mailbox import SemaphoreMailbox, SemaphoreNames
from aici_runtime.memory import shm

__all__ = ["MIB", "Channels", "Mailbox", "MessageTooLargeError", "Sync"]


@dataclass(frozen=True, slots=True)
class Channels:
    """Creates and attaches the mailboxes of a runtime; their names begin with `prefix`. The caller owns the
    mailboxes."""

    prefix: str
    sync: Sync
    size_bytes: int

    def create(self, direction: Direction, side: Side) -> Mailbox:
        """Create a mailbox, in the engine, before the runtime starts. A leftover of the same name is replaced."""
        if self.sync == "futex":
            return FutexMailbox(shm.create_region(self._region(direction, side), self.size_bytes), direction)
        return SemaphoreMailbox.create(self._names(direction, side), self.size_bytes)

    def attach(self, direction: Direction, side: Side) -> Mailbox:
        """Attach to a mailbox, in the runtime. With futexes the name is unlinked at once, so no second runtime can
        attach."""
        if self.sync == "futex":
            name = self._region(direction, side)
            memory = shm.attach_region(name, self.size_bytes, create=False)
            shm.unlink_region(name)
            return FutexMailbox(memory, direction)
        return SemaphoreMailbox.attach(self._names(direction, side), self.size_bytes)

    def unlink(self) -> None:
        """Unlink all remaining names."""
        for direction, side in self.each():
            if self.sync == "futex":
                shm.unlink_region(self._region(direction, side))
            else:
                SemaphoreMailbox.unlink(self._names(direction, side))

    @staticmethod
    def each() -> Iterator[tuple[Direction, Side]]:
        """Iterate over the direction and the channel of all mailboxes."""
        return product(get_args(Direction), get_args(Side))

    def _region(self, direction: Direction, side: Side) -> str:
        return f"{self.prefix}{direction}{side}"

    def _names(self, direction: Direction, side: Side) -> SemaphoreNames:
        return SemaphoreNames.of(self.prefix, direction, side)
