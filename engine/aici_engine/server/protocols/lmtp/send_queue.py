"""The items that a connection still has to send. Any task puts items; one task sends them."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Literal

from aici_engine.server.protocols.lmtp.messages import Item, encode_item, frame

_MAX_BYTES = 4 << 20
_MAX_FRAME_BYTES = 1 << 20
"""Clients accept messages of up to 4 MiB."""

Command = Literal["TOKEN", "MSG"]


class SendQueue:
    """A bounded queue of items. `put` never blocks.

    While the queue `is_full`, a stream with a new item fails, and the connection awaits `room` before the next message.
    """

    def __init__(self, *, max_bytes: int = _MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._items: deque[tuple[Command, bytes]] = deque()
        self._num_bytes = 0
        self._filled = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()

    @property
    def is_full(self) -> bool:
        return not self._room.is_set()

    def put(self, command: Command, item: Item) -> None:
        data = encode_item(item)
        self._items.append((command, data))
        self._num_bytes += len(data)
        self._filled.set()
        if self._num_bytes > self._max_bytes:
            self._room.clear()

    async def room(self) -> None:
        await self._room.wait()

    async def send_to(self, send: Callable[[str], Awaitable[None]]) -> None:
        """Send items until cancelled. Items put during a send go into the next message together."""
        while True:
            await self._filled.wait()
            while self._items:
                await send(self._next())
                if self._num_bytes <= self._max_bytes // 2:
                    self._room.set()
            self._filled.clear()

    def _next(self) -> str:
        command = self._items[0][0]
        datas: list[bytes] = []
        size = 0
        while self._items and self._items[0][0] == command and (not datas or size < _MAX_FRAME_BYTES):
            data = self._items.popleft()[1]
            datas.append(data)
            size += len(data)
        self._num_bytes -= size
        return frame(command, datas)
