"""uvicorn as we run it: its parser, with bounds on what comes before a body, which uvicorn itself does not have."""

import asyncio
import contextlib
from collections.abc import Iterator

import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MAX_HEAD_BYTES = 64 << 10
_TOO_LONG = b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


class Server(uvicorn.Server):
    """Signals are its owner's. Sleeps while there is nothing to do: uvicorn's own loop wakes ten times a second."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._stopped = asyncio.Event()

    def stop(self) -> None:
        self.should_exit = True
        self._stopped.set()

    async def main_loop(self) -> None:
        await self._stopped.wait()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class HttpProtocol(HttpToolsProtocol):
    """Closes a connection whose next request does not begin and get past its headers in time."""

    head_timeout_s = 30.0
    _timer: asyncio.TimerHandle | None = None
    _head_bytes = 0
    _in_head = True

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn does
        super().connection_made(transport)
        self._await_head()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._in_head:
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HEAD_BYTES and not self.transport.is_closing():
                self.transport.write(_TOO_LONG)
                self.transport.close()

    def on_message_begin(self) -> None:
        self._in_head, self._head_bytes = True, 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._stop_waiting()
        super().on_headers_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        # Not if a request that came meanwhile is served now.
        if self.cycle.response_complete and not self.transport.is_closing():
            self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def _await_head(self) -> None:
        self._stop_waiting()
        self._timer = self.loop.call_later(self.head_timeout_s, self.transport.close)

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def config(app: FastAPI, *, http: type[HttpProtocol] = HttpProtocol, port: int = 0) -> uvicorn.Config:
    """`port` counts only where no socket is given."""
    return uvicorn.Config(
        app,
        port=port,
        http=http,
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,  # kept by the loop that ours is not; `access_log.py` writes it
        timeout_graceful_shutdown=1,
        ws_max_size=16 << 20,
        ws_per_message_deflate=False,
        # A client that computes for minutes answers no ping meanwhile, and must not lose its streams for it.
        ws_ping_interval=60,
        ws_ping_timeout=600,
    )
