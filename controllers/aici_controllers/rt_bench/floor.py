"""The lower bound of a round trip between two processes: a message there and back, without any work."""

import os
import signal
import time
from collections.abc import Callable
from contextlib import ExitStack
from mmap import mmap
from types import TracebackType
from typing import Protocol

from aici_runtime import process
from aici_runtime.channels.mailbox import Sync
from aici_runtime.memory import shm
from aici_runtime.memory.futex import Futex

_MESSAGE = bytes(200)
_HALF = 4096


class Primitive(Protocol):
    """One message word in each direction. Created before the fork, used in both processes."""

    def send(self, way: int) -> None: ...

    def wait(self, way: int) -> None: ...


class Semaphores:
    def __init__(self) -> None:
        prefix = shm.unique_prefix()
        self._ways = [shm.create_semaphore(f"{prefix}{way}", 0) for way in range(2)]
        for way in range(2):
            shm.unlink_semaphore(f"{prefix}{way}")

    def send(self, way: int) -> None:
        self._ways[way].release()

    def wait(self, way: int) -> None:
        self._ways[way].acquire()


class Futexes:
    def __init__(self) -> None:
        self._words = Futex(mmap(-1, 4096))

    def send(self, way: int) -> None:
        self._words.store(4 * way, 1)
        self._words.wake(4 * way)

    def wait(self, way: int) -> None:
        self._words.wait_while(4 * way, 0)
        self._words.store(4 * way, 0)


class Floor:
    """Two processes and a page of shared memory. Must be created while this process has one thread; owns the other
    process."""

    def __init__(self, primitive: Primitive) -> None:
        self._primitive = primitive
        self._memory = mmap(-1, 2 * _HALF)
        own = os.pidfd_open(os.getpid())
        self._pid = process.fork_child(lambda: self._echo(own))
        os.close(own)

    def _echo(self, parent: int) -> None:
        process.die_with(parent)
        while True:
            self._primitive.wait(0)
            self._memory[_HALF : _HALF + len(_MESSAGE)] = self._memory[: len(_MESSAGE)]
            self._primitive.send(1)

    def round_trip_s(self) -> float:
        started = time.perf_counter()
        self._memory[: len(_MESSAGE)] = _MESSAGE
        self._primitive.send(0)
        self._primitive.wait(1)
        bytes(self._memory[_HALF : _HALF + len(_MESSAGE)])
        return time.perf_counter() - started

    def __enter__(self) -> "Floor":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)
        self._memory.close()


PRIMITIVES: dict[Sync, Callable[[], Primitive]] = {"semaphore": Semaphores, "futex": Futexes}


def open_floors(stack: ExitStack) -> dict[Sync, Floor]:
    """Return the floors by name of the primitive. Call before any thread starts."""
    return {name: stack.enter_context(Floor(make())) for name, make in PRIMITIVES.items()}
