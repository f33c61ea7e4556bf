"""An ASGI app behind a real socket, in the test's own asyncio loop."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import uvicorn
from fastapi import FastAPI


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self):  # type: ignore[no-untyped-def]
        yield


@contextlib.asynccontextmanager
async def listening(app: FastAPI) -> AsyncIterator[int]:
    """The port."""
    server = _Server(uvicorn.Config(app, port=0, log_config=None, timeout_graceful_shutdown=1))
    serving = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0)
    try:
        yield server.servers[0].sockets[0].getsockname()[1]
    finally:
        server.should_exit = True
        await serving


async def exchange(port: int, *requests: bytes) -> bytes:
    """Everything that the server says to these bytes, until it closes or is silent after the last."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    said = b""
    for request in requests:
        writer.write(request)
        said += await _head_and_body(reader)
    writer.close()
    return said


async def _head_and_body(reader: asyncio.StreamReader) -> bytes:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError as ended:
        return ended.partial
    length = next((line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")), b":0")
    return head + await reader.readexactly(int(length.partition(b":")[2]))
