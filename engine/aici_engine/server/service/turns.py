"""Turns: a few slots for costly work of API keys, taken by the keys in turn."""

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import TypeVar

_R = TypeVar("_R")


class Turns:
    """At most `slots` pieces of work run at a time, at most `most_per_key` of one key. A free slot goes to the waiting
    key whose last turn is longest ago, and within the key to the work that has waited longest.

    With `most_per_key` below `slots`, work of another key never waits for a single key that keeps its slots busy.
    """

    def __init__(self, slots: int, *, most_per_key: int) -> None:
        self._free = slots
        self._most_per_key = most_per_key
        self._keys: dict[str, _Key] = {}
        """The keys that wait or run, the next one first."""

    @contextlib.asynccontextmanager
    async def take(self, key: str) -> AsyncIterator[None]:
        """Wait for a slot, and hold it until the context ends."""
        turn = asyncio.get_running_loop().create_future()
        self._keys.setdefault(key, _Key()).waiting.append(turn)
        self._give()
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # the slot was given in the meantime
                self._end(key)
            raise
        try:
            yield
        finally:
            self._end(key)

    async def in_thread(self, key: str, work: Callable[[], _R]) -> _R:
        """Return the result of `work`, run in a thread when it is the key's turn. A cancelled caller leaves the queue;
        running work keeps its slot to the end."""
        async with self.take(key):
            running = asyncio.ensure_future(asyncio.to_thread(work))
            try:
                return await asyncio.shield(running)
            except asyncio.CancelledError:
                await asyncio.wait([running])
                raise

    def _give(self) -> None:
        """Give the free slots to waiting keys."""
        while self._free and (key := self._next()) is not None:
            state = self._keys[key]
            self._to_the_end(key)
            self._free -= 1
            state.num_running += 1
            state.waiting.popleft().set_result(None)

    def _next(self) -> str | None:
        """Return the key whose turn is next, or None if no key may have a further slot. Drops keys without work."""
        for key, state in list(self._keys.items()):
            while state.waiting and state.waiting[0].cancelled():
                state.waiting.popleft()
            if not (state.num_running or state.waiting):
                del self._keys[key]
            if state.waiting and state.num_running < self._most_per_key:
                return key
        return None

    def _end(self, key: str) -> None:
        self._free += 1
        self._keys[key].num_running -= 1
        self._to_the_end(key)
        self._give()

    def _to_the_end(self, key: str) -> None:
        self._keys[key] = self._keys.pop(key)


class _Key:
    def __init__(self) -> None:
        self.num_running = 0
        self.waiting: deque[asyncio.Future[None]] = deque()
