"""HTTP to a server: one connection a request, and failures as errors of aici."""

import contextlib
import http.client
import json
import signal
import socket
import urllib.parse
from collections.abc import Iterator, Mapping
from typing import Any, Final

from aici.backend import Cancel
from aici.errors import (
    AiciError,
    ForbiddenError,
    RateLimitError,
    TooLargeError,
    UnauthorizedError,
    UnreachableError,
    UsageError,
)
from aici_base.errors import DEFAULT_RETRY_AFTER_S, class_of

DEFAULT_URL: Final = "http://127.0.0.1:4242"
_CONNECT_S: Final = 10.0
_MAX_RETRY_AFTER_S: Final = 86400.0
"""Beyond some centuries, waiting raises OverflowError."""
_START_FAILED: Final = "While executing instantiate:\n"
"""The beginning of AICI REST's message about a controller that fails to start."""
NOT_THERE: Final = "is `aici serve` running there? The server answers once the model is loaded"
_BY_STATUS: Final[Mapping[int, type[AiciError]]] = {
    **dict.fromkeys((400, 404, 409, 422), UsageError),
    401: UnauthorizedError,
    403: ForbiddenError,
    413: TooLargeError,
    429: RateLimitError,
}
"""The class of an answer without a known code, for example of a proxy. Any other status: AiciError."""


def split_url(url: str) -> tuple[str, dict[str, str]]:
    """Return the address of `/v1`, and the headers for the key behind `#key=`."""
    try:
        parts = urllib.parse.urlsplit(url)
        parts.netloc.encode("idna")
        is_plain = parts.path.isascii() and " " not in parts.path
    except (ValueError, AttributeError, TypeError) as error:
        raise UsageError(f"{url!r} is no server's address: {error}", hint=f"give one like {DEFAULT_URL}") from error
    if not is_plain or parts.scheme not in ("http", "https") or not parts.hostname:
        raise UsageError(f"{url} is no server's address", hint=f"give one like {DEFAULT_URL}")
    path = parts.path.rstrip("/").removesuffix("/v1") + "/v1"
    key = urllib.parse.parse_qs(parts.fragment).get("key")
    return urllib.parse.urlunsplit((parts.scheme, parts.netloc, path, "", "")), key_headers(key[0]) if key else {}


def key_headers(key: str) -> dict[str, str]:
    if not (isinstance(key, str) and key.isascii() and key.isprintable()):
        raise UsageError("the API key is no line of ASCII", hint="is the key complete, and nothing else in it?")
    return {"Authorization": f"Bearer {key}", "api-key": key}


class Server:
    """A server's address and key. `url` is the server's, with or without `/v1/`; a key may stand behind `#key=`.

    Methods are called from any thread.
    """

    def __init__(self, url: str, *, api_key: str | None = None) -> None:
        base, self._headers = split_url(url)
        if api_key is not None:
            self._headers = key_headers(api_key)
        parts = urllib.parse.urlsplit(base)
        try:
            port = parts.port
        except ValueError as error:
            raise UsageError(f"{url} is no server's address: {error}") from error
        self._kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        self._host, self._port = parts.hostname or "", port
        self._path = parts.path
        self.shown = base.removesuffix("/v1")

    def send(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        for_operators: bool = False,
        accept: str = "*/*",
    ) -> "Exchange":
        """Connect and send a request to `/v1` + `path`. Raise UnreachableError without a server at the address.

        `for_operators`: the path is of an operator's route, beside `/v1`.
        """
        connection = self._kind(self._host, self._port, timeout=_CONNECT_S)
        is_json = path != "/controllers"
        headers = {"Content-Type": "application/json" if is_json else "application/wasm"} if body is not None else {}
        try:
            connection.connect()
            # An answer may take long; TCP checks that the server is alive.
            connection.sock.settimeout(None)
            connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            exchange = Exchange(connection, self.shown)
            with _no_sigpipe():
                base = self._path.removesuffix("/v1") if for_operators else self._path
                connection.request(method, base + path, body, self._headers | headers | {"Accept": accept})
        except (BrokenPipeError, ConnectionResetError):
            pass  # the server has answered before the end of the request
        except OSError as error:
            connection.close()
            raise UnreachableError(
                f"{self.shown} cannot be reached: {error.strerror or error}", hint=NOT_THERE
            ) from error
        return exchange

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
    """A request and the answer, over one connection. A context manager; the end closes the connection."""

    def __init__(self, connection: http.client.HTTPConnection, shown: str) -> None:
        self._connection = connection
        self._socket = connection.sock
        self._response: http.client.HTTPResponse | None = None
        self.shown = shown

    def response(self) -> http.client.HTTPResponse:
        """Wait until the server answers. Raise the error of any status but 200."""
        response = self.any_response()
        if response.status != http.HTTPStatus.OK:
            with self.read_errors():
                raise _error(response, response.read())
        return response

    def any_response(self) -> http.client.HTTPResponse:
        """Wait until the server answers, with any status."""
        if self._response is None:
            with self.read_errors():
                self._response = self._connection.getresponse()
        return self._response

    @contextlib.contextmanager
    def read_errors(self) -> Iterator[None]:
        """Turn errors of the connection and of the JSON into an AiciError."""
        try:
            yield
        except (OSError, http.client.HTTPException) as error:
            raise AiciError(f"the connection to {self.shown} broke: {error!r}") from error
        except (ValueError, KeyError, TypeError) as error:
            raise AiciError(f"{self.shown} does not speak AICI REST: {error}") from error

    def break_off(self) -> None:
        """End the exchange from any thread; a reading thread sees the end of the answer."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        if self._response is not None:
            self._response.close()
        self._connection.close()

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


def quote(name: str) -> str:
    return urllib.parse.quote(name, safe="")


def _error(response: http.client.HTTPResponse, body: bytes) -> AiciError:
    """Return the error that an answer reports: in AICI REST's form, in OpenAI's form, or in none."""
    codes: tuple[object, ...] = ()
    try:
        told = json.loads(body)
        told = told.get("error", told)
        # AICI REST has the error's code in `code`, OpenAI's form in `type`.
        message, hint, codes = told["message"], told.get("hint") or "", (told.get("code"), told.get("type"))
    except (ValueError, KeyError, AttributeError):
        message, hint = body.decode(errors="replace").strip() or f"HTTP status {response.status}", ""
    message = str(message).removeprefix(_START_FAILED)
    known = (kind for kind in (class_of(str(code)) for code in codes) if kind is not AiciError)
    kind = next(known, _BY_STATUS.get(response.status, AiciError))
    if issubclass(kind, UnauthorizedError):
        return kind(
            message,
            hint=hint,
            cli_hint="append a key of the server to the URL: #key=KEY",
            python_hint="pass a key of the server: api_key=",
        )
    if issubclass(kind, RateLimitError):
        after = response.headers["Retry-After"] or ""
        after_s = min(float(after), _MAX_RETRY_AFTER_S) if after.isdecimal() else DEFAULT_RETRY_AFTER_S
        return kind(message, hint=hint or f"try again in {after_s:g} s", retry_after_s=after_s)
    return kind(message, hint=hint)


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
