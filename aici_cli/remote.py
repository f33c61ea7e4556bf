"""A server as the command line sees it: AICI REST, with nothing but the standard library."""

import contextlib
import hashlib
import http.client
import json
import signal
import socket
import urllib.parse
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Self

from aici_base.errors import AiciError, ControllerError, NotFoundError, UnreachableError, UsageError
from aici_runtime.modules.registry import Module
from aici_runtime.modules.tags import is_module_id
from aici_runtime.wire import ModuleInfo, TagInfo

DEFAULT_URL = "http://127.0.0.1:4242"
_CONNECT_S = 10.0
_KINDS: Mapping[str, type[AiciError]] = {kind.code: kind for kind in (UsageError, NotFoundError, ControllerError)}


def split_url(url: str) -> tuple[str, dict[str, str]]:
    """The address of `/v1`, and the headers of the key that stands behind `#key=`."""
    parts = urllib.parse.urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UsageError(f"{url} is no server's address", hint=f"give one like {DEFAULT_URL}")
    path = parts.path.rstrip("/").removesuffix("/v1") + "/v1"
    key = urllib.parse.parse_qs(parts.fragment).get("key")
    headers = {"Authorization": f"Bearer {key[0]}", "api-key": key[0]} if key else {}
    return urllib.parse.urlunsplit((parts.scheme, parts.netloc, path, "", "")), headers


class Remote:
    """`url`: of the server, or of its `/v1/`; a key stands behind `#key=`."""

    def __init__(self, url: str) -> None:
        base, self._headers = split_url(url)
        parts = urllib.parse.urlsplit(base)
        try:
            port = parts.port
        except ValueError as error:
            raise UsageError(f"{url} is no server's address: {error}") from error
        self._kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        self._host, self._port = parts.hostname or "", port
        self._path = parts.path
        self._shown = base.removesuffix("/v1")

    def upload(self, wasm: bytes) -> ModuleInfo:
        with self._told("POST", "/controllers", wasm) as told:
            return ModuleInfo(told["module_id"], told["wasm_size"], told["compiled_size"], told["time"])

    def fetch(self, name: str) -> bytes:
        """Of a module id or a name. What has come is what the server's id says, or an AiciError."""
        with contextlib.closing(self._send("GET", f"/controllers/{_quote(name)}", None)) as connection:
            with _said(self._shown):
                response = _answer(connection)
                wasm = response.read()
            module_id = name if is_module_id(name) else (response.headers["ETag"] or "").strip('"')
            if hashlib.sha256(wasm).hexdigest() != module_id:
                raise AiciError(f"what {self._shown} sent is not the module {module_id}", hint="try again")
            return wasm

    def modules(self) -> list[Module]:
        with self._told("GET", "/controllers") as told:
            return [Module(**module | {"tags": tuple(module["tags"])}) for module in told["controllers"]]

    def tags(self) -> list[TagInfo]:
        with self._told("GET", "/controllers/tags") as told:
            return [TagInfo(**tag) for tag in told["tags"]]

    def set_tags(self, module_id: str, tags: Sequence[str]) -> list[TagInfo]:
        request = {"module_id": module_id, "tags": list(tags)}
        with self._told("POST", "/controllers/tags", _encode(request)) as told:
            return [TagInfo(**tag) for tag in told["tags"]]

    def remove(self, module_id: str, *, force: bool) -> list[str]:
        """Returns the tags that went with it."""
        with self._told("DELETE", f"/controllers/{module_id}{'?force=true' if force else ''}") as told:
            return list(told["tags"])

    def remove_tag(self, tag: str) -> None:
        with self._told("DELETE", f"/controllers/tags/{_quote(tag)}"):
            pass

    def start(self, request: Mapping[str, object]) -> "RemoteRun":
        return RemoteRun(self._send("POST", "/run", _encode(request)), self._shown)

    @contextlib.contextmanager
    def _told(self, method: str, path: str, body: bytes | None = None) -> Iterator[Any]:
        """The answer's JSON; whoever finds in it what AICI REST does not say, says so."""
        with contextlib.closing(self._send(method, path, body)) as connection, _said(self._shown):
            yield json.loads(_answer(connection).read())

    def _send(self, method: str, path: str, body: bytes | None) -> http.client.HTTPConnection:
        connection = self._kind(self._host, self._port, timeout=_CONNECT_S)
        is_json = path != "/controllers"
        headers = {"Content-Type": "application/json" if is_json else "application/wasm"} if body is not None else {}
        try:
            connection.connect()
            # An answer may take long; whether the server is still there, TCP asks.
            connection.sock.settimeout(None)
            connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            with _no_sigpipe():
                connection.request(method, self._path + path, body, self._headers | headers)
        except (BrokenPipeError, ConnectionResetError):
            pass  # it has answered before it had read all
        except OSError as error:
            connection.close()
            hint = "is `aici serve` running there?"
            raise UnreachableError(f"{self._shown} cannot be reached: {error.strerror or error}", hint=hint) from error
        return connection


class RemoteRun:
    """One run that was asked for. A context manager: leaving it early ends the run on the server."""

    def __init__(self, connection: http.client.HTTPConnection, shown: str) -> None:
        self._connection = connection
        self._shown = shown
        self._response: http.client.HTTPResponse | None = None

    def wait_started(self) -> None:
        """Until the server takes the request. Raises what it says if it does not."""
        if self._response is None:
            with _said(self._shown):
                self._response = _answer(self._connection)

    def objects(self) -> Iterator[dict[str, Any]]:
        """The `initial-run`, then each `run`."""
        self.wait_started()
        assert self._response is not None
        with _said(self._shown):
            for line in self._response:
                if line == b"data: [DONE]\n":
                    return
                if line.startswith(b"data: "):
                    yield json.loads(line.removeprefix(b"data: "))
        raise AiciError(f"{self._shown} ended the answer before it was complete")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        if self._response is not None:
            self._response.close()
        self._connection.close()


def _quote(name: str) -> str:
    return urllib.parse.quote(name, safe="")


def _encode(request: Mapping[str, object]) -> bytes:
    return json.dumps(request, ensure_ascii=False).encode()


def _answer(connection: http.client.HTTPConnection) -> http.client.HTTPResponse:
    response = connection.getresponse()
    if response.status == http.HTTPStatus.OK:
        return response
    raise _error(response.status, response.read())


def _error(status: int, body: bytes) -> AiciError:
    try:
        said = json.loads(body)
        said = said.get("error", said)
        message, hint, code = said["message"], said.get("hint") or "", said.get("code")
    except (ValueError, KeyError, AttributeError):
        message, hint, code = body.decode(errors="replace").strip() or f"HTTP status {status}", "", None
    is_usage = status in (400, 404, 409, 422)
    return _KINDS.get(str(code), UsageError if is_usage else AiciError)(message, hint=hint)


@contextlib.contextmanager
def _no_sigpipe() -> Iterator[None]:
    """When a server closes the connection, that is said; when who reads our output does, we end."""
    before = signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGPIPE, before)


@contextlib.contextmanager
def _said(shown: str) -> Iterator[None]:
    try:
        yield
    except (OSError, http.client.HTTPException) as error:
        raise AiciError(f"the connection to {shown} broke: {error!r}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise AiciError(f"{shown} does not speak AICI REST: {error}") from error
