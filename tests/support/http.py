"""An ASGI app behind a real socket, in the test's own asyncio loop."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from fastapi import FastAPI

from aici_engine.server.gateway.http_server import HttpProtocol, HttpServer, config


@contextlib.asynccontextmanager
async def listening(app: FastAPI, http: type[HttpProtocol] = HttpProtocol) -> AsyncIterator[int]:
    """Serve `app`; yield the port."""
    server = HttpServer(config(app, http=http))
    serving = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0)
    try:
        yield server.servers[0].sockets[0].getsockname()[1]
    finally:
        server.stop()
        await serving


async def exchange(port: int, *requests: bytes) -> bytes:
    """Send the requests and return every byte of the server until the server closes or is silent after the last
    request."""
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
