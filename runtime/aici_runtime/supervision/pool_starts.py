"""The pools that take in new guests, for the side process. A pool has the guests of one module and one user.

A guest that starts in a pool needs no process of its own, and all guests of a pool are woken at once. Guests of two
users never share a process. A pool starts one guest at a time; a request that would wait for long gets a process of its
own.
"""

import contextlib
import socket
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from aici_runtime.memory.worker_slots import POOL_GUESTS_MAX, WorkerSlot
from aici_runtime.workers.startup import SPAWN_REQUEST, with_memory

_PATIENCE_S = 0.05
"""The longest wait for one guest that starts before. A start takes a millisecond or two; with a large argument,
seconds."""

_MANY_GUESTS = 8
"""With so many guests in its pools, a module gets a further pool, as long as there are cores."""

_MAX_KEYS = 32
"""Modules and users with pools. An idle pool of a further one ends."""


class PoolKey(NamedTuple):
    module_id: str
    user: str


class Pool:
    """The side process's handle of a pool. After the end of the socket that the handle owns, the pool takes in no guest
    and ends with its last. `lock`: held while a guest starts. `num_starts`: those that are over."""

    def __init__(self, control: socket.socket, slot: WorkerSlot) -> None:
        self._control = control
        self._slot = slot
        self.lock = threading.Lock()
        self.num_starts = 0
        self.has_ended = False

    @property
    def num_guests(self) -> int:
        return self._slot.num_guests()

    def ask(self, slot: int, generation: int, memory: int, image: int) -> socket.socket:
        """Ask for a guest, as `SpawnerSockets.spawn` does. Return the socket on which the pool takes the order and
        reports. `image`: -1 for none. Raises OSError when the pool is gone."""
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                fds = [*with_memory(theirs, memory), *([image] if image >= 0 else [])]
                socket.send_fds(self._control, [SPAWN_REQUEST.pack(slot, generation)], fds)
            except BaseException:
                ours.close()
                raise
        return ours

    def end(self) -> None:
        """Take in no further guest. Idempotent."""
        self.has_ended = True
        with contextlib.suppress(OSError):
            self._control.shutdown(socket.SHUT_RDWR)  # not closed: another thread may be about to ask


@dataclass(slots=True, eq=False)
class _Entry:
    """The pools of a key. `making`: held while a pool starts."""

    making: threading.Lock = field(default_factory=threading.Lock)
    pools: list[Pool] = field(default_factory=list)


class PoolStarts:
    """`modules`: those whose guests share processes; None: all. `size`: the pools of a module and a user, unless they
    are full."""

    def __init__(self, *, modules: Collection[str] | None, size: int) -> None:
        self._modules = modules
        self._size = size
        self._lock = threading.Lock()
        self._entries: OrderedDict[PoolKey, _Entry] = OrderedDict()  # least recently used first
        self._refused: set[str] = set()

    def take_in(self, module_id: str) -> bool:
        """Return whether guests of the module share processes."""
        return (self._modules is None or module_id in self._modules) and module_id not in self._refused

    def refuse(self, module_id: str) -> None:
        """Remember that guests of the module cannot share processes."""
        self._refused.add(module_id)

    @contextlib.contextmanager
    def taken(self, key: PoolKey, make: Callable[[], Pool | None]) -> Iterator[Pool | None]:
        """Yield a pool that starts no other guest meanwhile. None: start the guest in a process of its own."""
        pool = self._choose(key, make)
        if pool is None or not _has_turn(pool):
            yield None
            return
        try:
            yield None if pool.has_ended else pool
        finally:
            pool.num_starts += 1
            pool.lock.release()

    def drop_modules(self, is_gone: Callable[[str], bool]) -> None:
        """End the pools of removed modules. `is_gone` tells whether a module id was removed."""
        with self._lock:
            gone = {module_id for module_id in {key.module_id for key in self._entries} if is_gone(module_id)}
            for key in [key for key in self._entries if key.module_id in gone]:
                _end(self._entries.pop(key))

    def _choose(self, key: PoolKey, make: Callable[[], Pool | None]) -> Pool | None:
        with self._lock:
            entry = self._entries.setdefault(key, _Entry())
            self._entries.move_to_end(key)
            if len(self._entries) > _MAX_KEYS:
                _end(self._entries.pop(next(iter(self._entries))))
        with entry.making:
            entry.pools = [pool for pool in entry.pools if not pool.has_ended]
            best = min(entry.pools, key=lambda pool: pool.num_guests, default=None)
            if best is None or best.num_guests >= (_MANY_GUESTS if len(entry.pools) < self._size else POOL_GUESTS_MAX):
                best = make()
                if best is not None:
                    entry.pools.append(best)
            return best


def _has_turn(pool: Pool) -> bool:
    """Wait for the pool's lock as long as starts go on. Return False if one of them takes too long."""
    seen = pool.num_starts
    while not pool.lock.acquire(timeout=_PATIENCE_S):
        if pool.num_starts == seen:
            return False
        seen = pool.num_starts
    return True


def _end(entry: _Entry) -> None:
    for pool in entry.pools:
        pool.end()
