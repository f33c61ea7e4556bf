"""An ASGI app behind a real socket, in the test's own asyncio loop."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Sequence

from fastapi import FastAPI

from aici_engine.server.gateway.connections import Connections, Listener
from aici_engine.server.gateway.http_server import HttpProtocol, HttpServer, config
from aici_engine.server.gateway.tls import ServerTls


@contextlib.asynccontextmanager
async def listening(
    app: FastAPI,
    http: type[HttpProtocol] = HttpProtocol,
    *,
    connections: Connections | None = None,
    tls: ServerTls | None = None,
    trusted_proxies: Sequence[str] = (),
) -> AsyncIterator[int]:
    """Serve `app`; yield the port."""
    connections = connections or Connections()
    server = HttpServer(config(app, http=http, connections=connections, tls=tls, trusted_proxies=trusted_proxies))
    listener = Listener(socket.AF_INET, socket.SOCK_STREAM)
    listener.connections = connections
    listener.bind(("127.0.0.1", 0))
    serving = asyncio.create_task(server.serve([listener]))
    while not server.started:
        await asyncio.sleep(0)
    try:
        yield listener.getsockname()[1]
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
