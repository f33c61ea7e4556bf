"""A WebSocket to an ASGI app, without a network: both ends run in the test's own asyncio loop."""

import asyncio
from typing import Any, Self

from starlette.types import ASGIApp, Message


class Socket:
    """A context manager: leaving the context closes the connection. While `reading` is not set, nothing more is
    read."""

    def __init__(self, app: ASGIApp, path: str = "/", *, headers: tuple[tuple[bytes, bytes], ...] = ()) -> None:
        self._app = app
        path, _, query = path.partition("?")
        self._scope: dict[str, Any] = {
            "type": "websocket",
            "asgi": {"version": "3.0", "spec_version": "2.4"},
            "scheme": "ws",
            "path": path,
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "headers": list(headers),
            "subprotocols": [],
            "extensions": {"websocket.http.response": {}},
        }
        self._to_app: asyncio.Queue[Message] = asyncio.Queue()
        self._from_app: asyncio.Queue[Message] = asyncio.Queue()
        self.reading = asyncio.Event()
        self.reading.set()

    async def send(self, text: str) -> None:
        await self._to_app.put({"type": "websocket.receive", "text": text})

    async def send_bytes(self, data: bytes) -> None:
        await self._to_app.put({"type": "websocket.receive", "bytes": data})

    async def receive(self) -> str:
        message = await self._from_app.get()
        assert message["type"] == "websocket.send", message
        return str(message["text"])

    async def close(self, code: int = 1006) -> None:
        """Close as a broken connection does; return when the app has ended."""
        self.reading.set()
        await self._to_app.put({"type": "websocket.disconnect", "code": code})
        await self._running

    async def _take(self, message: Message) -> None:
        await self.reading.wait()
        await self._from_app.put(message)

    async def __aenter__(self) -> Self:
        self._running = asyncio.create_task(self._app(self._scope, self._to_app.get, self._take))  # type: ignore[arg-type]
        await self._to_app.put({"type": "websocket.connect"})
        assert (await self._from_app.get())["type"] == "websocket.accept"
        return self

    async def __aexit__(self, *exc: object) -> None:
        if not self._running.done():
            await self.close()
