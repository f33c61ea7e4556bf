"""The four mailboxes between an engine and a runtime: commands and responses, of two channels."""

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
    """Their names begin with `prefix`. Owns none of what it opens."""

    prefix: str
    sync: Sync
    size_bytes: int

    def create(self, direction: Direction, side: Side) -> Mailbox:
        """The engine's end, before it starts a runtime. What is left of a predecessor is replaced."""
        if self.sync == "futex":
            return FutexMailbox(shm.create_region(self._region(direction, side), self.size_bytes), direction)
        return SemaphoreMailbox.create(self._names(direction, side), self.size_bytes)

    def attach(self, direction: Direction, side: Side) -> Mailbox:
        """The runtime's end. With futexes the name is gone after it: no other runtime can come in between."""
        if self.sync == "futex":
            name = self._region(direction, side)
            memory = shm.attach_region(name, self.size_bytes, create=False)
            shm.unlink_region(name)
            return FutexMailbox(memory, direction)
        return SemaphoreMailbox.attach(self._names(direction, side), self.size_bytes)

    def unlink(self) -> None:
        """Remove every name that still stands."""
        for direction, side in self.each():
            if self.sync == "futex":
                shm.unlink_region(self._region(direction, side))
            else:
                SemaphoreMailbox.unlink(self._names(direction, side))

    @staticmethod
    def each() -> Iterator[tuple[Direction, Side]]:
        return product(get_args(Direction), get_args(Side))

    def _region(self, direction: Direction, side: Side) -> str:
        return f"{self.prefix}{direction}{side}"

    def _names(self, direction: Direction, side: Side) -> SemaphoreNames:
        return SemaphoreNames.of(self.prefix, direction, side)
