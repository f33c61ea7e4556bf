"""uvicorn, configured for this server, with limits on the size and the time of a request's head (uvicorn has none)."""

import asyncio
import contextlib
from collections.abc import Iterator, Sequence

import uvicorn
from fastapi import FastAPI
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from aici_base.errors import UnavailableError
from aici_engine.server.gateway.connections import Connections
from aici_engine.server.gateway.error_responses import response
from aici_engine.server.gateway.tls import ServerTls

MAX_HEAD_BYTES = 64 << 10
_TOO_LONG = b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


class HttpConfig(uvicorn.Config):
    """uvicorn's settings, with those that its protocol classes do not know. `connections` are counted by a Listener.
    `busy` answers the requests of connections beyond the bound."""

    connections: Connections
    busy: ASGIApp


class HttpServer(uvicorn.Server):
    """A uvicorn server that leaves signals to its owner, and sleeps until `stop` (uvicorn wakes ten times a second)."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._stopped = asyncio.Event()

    def stop(self) -> None:
        self.should_exit = True
        self._stopped.set()

    def stop_listening(self) -> None:
        """Take no new connections. Open connections go on."""
        for each in self.servers:
            each.close()

    async def main_loop(self) -> None:
        await self._stopped.wait()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class HttpProtocol(HttpToolsProtocol):
    """Closes a connection if the next request's head is not complete within `head_timeout_s`, or too large.

    A head larger than MAX_HEAD_BYTES gets status 431, a request of a connection beyond the bound 503.
    """

    head_timeout_s = 30.0
    _timer: asyncio.TimerHandle | None = None
    _head_bytes = 0
    _in_head = True
    _is_beyond = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn does
        super().connection_made(transport)
        if isinstance(self.config, HttpConfig) and self.config.connections.are_too_many:
            self._is_beyond, self.app = True, self.config.busy
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

    def _should_upgrade(self) -> bool:
        return not self._is_beyond and super()._should_upgrade()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        # A pipelined request may be running already; in that case no timer starts.
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


def config(
    app: FastAPI,
    *,
    http: type[HttpProtocol] = HttpProtocol,
    port: int = 0,
    max_message_bytes: int = 8 << 20,
    connections: Connections | None = None,
    tls: ServerTls | None = None,
    trusted_proxies: Sequence[str] = (),
) -> HttpConfig:
    """Return the settings for HttpServer. `port` matters only if `HttpServer.serve` gets no socket.
    `max_message_bytes`: of a WebSocket.
    """
    made = HttpConfig(
        app,
        port=port,
        http=http,
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=bool(trusted_proxies),
        forwarded_allow_ips=list(trusted_proxies),  # without it, uvicorn trusts all of this machine
        ssl_context_factory=None if tls is None else lambda *_: tls.context,
        date_header=False,  # `access_log.py` writes the header: uvicorn's needs uvicorn's main loop
        timeout_graceful_shutdown=1,
        ws_max_size=max_message_bytes,
        ws_per_message_deflate=False,
        # A client that computes for minutes answers no pings, and must not lose its streams.
        ws_ping_interval=60,
        ws_ping_timeout=600,
    )
    made.connections = connections or Connections()
    made.busy = _busy(app)
    return made


def _busy(app: FastAPI) -> ASGIApp:
    async def busy(scope: Scope, receive: Receive, send: Send) -> None:
        error = UnavailableError("this server has as many connections as it takes", hint="try again later")
        answer = response(app.state.policies.errors_of(scope), error, {"Connection": "close"})
        await answer(scope, receive, send)

    return busy
