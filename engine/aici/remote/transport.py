"""Connections for httpx: kept alive, broken off by other threads, without SIGPIPE.

httpx waits for the headers of an answer without a handle to the connection. The streams of this module tell the
request that writes on them, so that a `Breaker` can end a request at any time.
"""

import contextlib
import signal
import socket
import ssl
import threading
from collections.abc import Iterable, Iterator
from typing import Any, Final, cast

import httpcore2
import httpx2

_MAX_KEPT: Final = 64
_KEEP_S: Final = 2.0
"""Shorter than servers keep an idle connection (uvicorn: 5 s): no request meets the server's end of the connection."""
_TCP_KEEPALIVE: Final = (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
"""An answer may take long; TCP checks that the server is alive."""
BREAKER: Final = "breaker"
"""The key of a request's Breaker in `extensions`."""


class Breaker:
    """Ends the exchange of one request, present or future. Methods are called from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stream: httpcore2.NetworkStream | None = None
        self._is_broken = False

    def break_off(self) -> None:
        """Let a reading thread see the end of the connection."""
        with self._lock:
            self._is_broken = True
            self._shut()

    def attach(self, stream: httpcore2.NetworkStream) -> None:
        with self._lock:
            self._stream = stream
            if self._is_broken:
                self._shut()

    def detach(self) -> None:
        """Leave the connection to the next request."""
        with self._lock:
            self._stream = None

    def _shut(self) -> None:
        if self._stream is not None:
            with contextlib.suppress(OSError):
                # The method of an SSLSocket would let the reading thread go on without TLS.
                socket.socket.shutdown(self._stream.get_extra_info("socket"), socket.SHUT_RDWR)


class Transport(httpx2.BaseTransport):
    """A pool of connections. Every request has a Breaker. Errors of connections are those of httpcore."""

    def __init__(self, *, is_https: bool) -> None:
        self._streams = _Streams()
        self._pool = httpcore2.ConnectionPool(
            # OpenSSL reads SSL_CERT_FILE and SSL_CERT_DIR.
            ssl_context=ssl.create_default_context() if is_https else None,
            max_connections=None,
            max_keepalive_connections=_MAX_KEPT,
            keepalive_expiry=_KEEP_S,
            network_backend=self._streams,
            socket_options=[_TCP_KEEPALIVE],
        )

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        breaker: Breaker = request.extensions[BREAKER]
        self._streams.asking.breaker = breaker
        url = request.url
        answer = self._pool.handle_request(
            httpcore2.Request(
                method=request.method,
                url=httpcore2.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path),
                headers=request.headers.raw,
                content=cast("httpx2.SyncByteStream", request.stream),
                extensions=request.extensions,
            )
        )
        return httpx2.Response(
            status_code=answer.status,
            headers=answer.headers,
            stream=_Body(answer, breaker),
            extensions=answer.extensions,
        )

    def close(self) -> None:
        self._pool.close()


class _Body(httpx2.SyncByteStream):
    def __init__(self, answer: httpcore2.Response, breaker: Breaker) -> None:
        self._answer = answer
        self._breaker = breaker

    def __iter__(self) -> Iterator[bytes]:
        yield from cast("Iterable[bytes]", self._answer.stream)

    def close(self) -> None:
        self._breaker.detach()
        self._answer.close()


class _Streams(httpcore2.SyncBackend):
    """Opens streams. `asking.breaker` is of the request that this thread sends."""

    def __init__(self) -> None:
        self.asking = threading.local()

    def connect_tcp(self, *args: Any, **kwargs: Any) -> httpcore2.NetworkStream:
        return _Stream(super().connect_tcp(*args, **kwargs), self.asking)


class _Stream(httpcore2.NetworkStream):
    """Attaches itself to the Breaker of each request that is written."""

    def __init__(self, inner: httpcore2.NetworkStream, asking: threading.local) -> None:
        self._inner = inner
        self._asking = asking

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._inner.read(max_bytes, timeout)

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._asking.breaker.attach(self)
        with _no_sigpipe():
            self._inner.write(buffer, timeout)

    def close(self) -> None:
        self._inner.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore2.NetworkStream:
        with _no_sigpipe():
            return _Stream(self._inner.start_tls(ssl_context, server_hostname, timeout), self._asking)

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)


@contextlib.contextmanager
def _no_sigpipe() -> Iterator[None]:
    """Block SIGPIPE for this thread: a closed connection raises BrokenPipeError."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGPIPE})
    try:
        yield
    finally:
        if signal.SIGPIPE not in before:
            signal.sigtimedwait({signal.SIGPIPE}, 0)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGPIPE})
