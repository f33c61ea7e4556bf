"""HTTP to a server: a client of httpx, and failures as errors of aici."""

import contextlib
import json
import os
import ssl
import urllib.parse
import weakref
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from typing import Any, Final

import httpcore2
import httpx2

from aici.backend import Cancel
from aici.errors import AiciError, UnreachableError, UsageError
from aici.remote.address import NOT_THERE, key_headers, split_url
from aici.remote.error_answers import error_of
from aici.remote.transport import BREAKER, Breaker, Transport

_CONNECT_S: Final = 10.0
_BROKEN: Final = (
    *(httpcore2.NetworkError, httpcore2.ProtocolError, httpcore2.TimeoutException, OSError),
    RuntimeError,  # of httpx, once the client is closed
)


class Server:
    """A server's address and key. `url` is the server's, with or without `/v1/`; a key may stand behind `#key=`.

    Methods are called from any thread, and from forked processes. Connections are kept for the next request; they
    close with this object.
    """

    def __init__(self, url: str, *, api_key: str | None = None) -> None:
        self._base, self._headers = split_url(url)
        if api_key is not None:
            self._headers = key_headers(api_key)
        self.shown = self._base.removesuffix("/v1")
        self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
        transport = Transport(is_https=urllib.parse.urlsplit(self._base).scheme == "https")
        headers = {"User-Agent": "aici", "Accept-Encoding": "identity"} | self._headers
        timeout = httpx2.Timeout(None, connect=_CONNECT_S)
        self._client = httpx2.Client(transport=transport, headers=headers, timeout=timeout, trust_env=False)
        self._close = weakref.finalize(self, self._client.close)

    def close(self) -> None:
        """Close the connections that are kept."""
        self._close()

    def send(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        for_operators: bool = False,
        accept: str = "*/*",
    ) -> "Exchange":
        """Return a request to `/v1` + `path`, not yet sent.

        `for_operators`: the path is of an operator's route, beside `/v1`.
        """
        if os.getpid() != self._pid:
            self._begin()  # a forked child must not write on its parent's connections
        is_json = path.partition("?")[0] != "/controllers"
        headers = {"Content-Type": "application/json" if is_json else "application/wasm"} if body is not None else {}
        url = (self.shown if for_operators else self._base) + path
        try:
            request = self._client.build_request(method, url, content=body, headers=headers | {"Accept": accept})
        except httpx2.InvalidURL as error:
            raise UsageError(f"{self.shown} is no server's address: {error}") from error
        return Exchange(self, self._client, request)

    @contextlib.contextmanager
    def json(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        cancel: Cancel | None = None,
        for_operators: bool = False,
    ) -> Iterator[Any]:
        """Give the JSON of the answer. A KeyError of the caller becomes an AiciError about the server.

        `cancel` breaks the exchange off.
        """
        with (
            self.send(method, path, body, for_operators=for_operators) as exchange,
            (cancel or Cancel()).covering(exchange.break_off),
            exchange.read_errors(),
        ):
            yield json.loads(exchange.response().read())


class Exchange:
    """A request and the answer. A context manager; the end gives the connection back."""

    def __init__(self, server: Server, client: httpx2.Client, request: httpx2.Request) -> None:
        self._server = server  # an exchange keeps the connections open
        self._client = client
        self._request = request
        self._breaker = request.extensions[BREAKER] = Breaker()
        self._response: httpx2.Response | None = None
        self.shown = server.shown

    def response(self) -> httpx2.Response:
        """Send the request and wait for the answer's headers. Raise the error of any status but 200.

        Raise UnreachableError without a server at the address.
        """
        response = self.any_response()
        if response.status_code != HTTPStatus.OK:
            with self.read_errors():
                raise error_of(response.status_code, response.headers, response.read())
        return response

    def any_response(self) -> httpx2.Response:
        """Send the request and wait for the answer's headers, with any status."""
        if self._response is None:
            with self.read_errors():
                self._response = self._client.send(self._request, stream=True)
        return self._response

    def lines(self) -> Iterator[bytes]:
        """Yield the answer's lines, as they arrive, without their ends. Only a newline ends a line."""
        begun: list[bytes] = []
        with self.read_errors():
            for chunk in self.response().iter_raw():
                first, *rest = chunk.split(b"\n")
                begun.append(first)
                for line in rest:
                    yield b"".join(begun)
                    begun = [line]
        if last := b"".join(begun):
            yield last

    @contextlib.contextmanager
    def read_errors(self) -> Iterator[None]:
        """Turn errors of the connection and of the JSON into an AiciError."""
        try:
            yield
        except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
            raise _unreachable(self.shown, error) from error
        except _BROKEN as error:
            raise AiciError(f"the connection to {self.shown} broke: {error!r}") from error
        except (ValueError, KeyError, TypeError) as error:
            raise AiciError(f"{self.shown} does not speak AICI REST: {error}") from error

    def break_off(self) -> None:
        """End the exchange from any thread, before the answer too; a reading thread sees the end of the answer."""
        self._breaker.break_off()

    def close(self) -> None:
        if self._response is not None:
            self._response.close()

    def __enter__(self) -> "Exchange":
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def encode(request: Mapping[str, object]) -> bytes:
    try:
        return json.dumps(request, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise UsageError(f"the text is not valid Unicode: {error}") from error
    except (TypeError, RecursionError) as error:
        raise UsageError(f"the request is not JSON: {error}") from error


def _unreachable(shown: str, error: Exception) -> UnreachableError:
    cause = error.__cause__ or error.__context__
    if isinstance(cause, ssl.SSLCertVerificationError):
        hint = "SSL_CERT_FILE names a file with the certificate that signed the server's"
        return UnreachableError(f"{shown} cannot be trusted: {cause.verify_message}", hint=hint)
    reason = (cause.strerror if isinstance(cause, OSError) else None) or str(error)
    return UnreachableError(f"{shown} cannot be reached: {reason}", hint=NOT_THERE)
