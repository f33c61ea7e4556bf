"""Requests to the server under attack, over the public API. Uses only the standard library."""

import http.client
import json
import socket
import ssl
import urllib.parse
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Self


@dataclass(frozen=True, slots=True, kw_only=True)
class Body:
    """What a request sends. `path` stands behind `/v1`, unless the path begins with `//`: then behind the host."""

    path: str
    data: bytes | None = None
    content_type: str = "application/json"

    @classmethod
    def json(cls, path: str, document: Any) -> Self:
        return cls(path=path, data=json.dumps(document).encode())

    @classmethod
    def wasm(cls, module: bytes) -> Self:
        return cls(path="/controllers", data=module, content_type="application/wasm")


@dataclass(frozen=True, slots=True)
class Client:
    """One key of a server. `url` is the address of `/v1`. No wait for the server is longer than `timeout_s`."""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    timeout_s: float = 60.0

    def connect(self) -> http.client.HTTPConnection:
        parts = urllib.parse.urlsplit(self.url)
        if parts.scheme == "https":
            return http.client.HTTPSConnection(parts.hostname or "", parts.port, timeout=self.timeout_s)
        return http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=self.timeout_s)

    def socket(self) -> socket.socket:
        """Connect and send nothing."""
        parts = urllib.parse.urlsplit(self.url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        plain = socket.create_connection((parts.hostname or "", port), self.timeout_s)
        if parts.scheme != "https":
            return plain
        return ssl.create_default_context().wrap_socket(plain, server_hostname=parts.hostname)

    def head(self, method: str, path: str, **headers: str) -> bytes:
        """Return the head of a request, for a socket."""
        parts = urllib.parse.urlsplit(self.url)
        lines = {"Host": parts.netloc, **self.headers, **{name.replace("_", "-"): headers[name] for name in headers}}
        return "\r\n".join([f"{method} {path} HTTP/1.1", *(f"{k}: {v}" for k, v in lines.items()), "", ""]).encode()

    @contextmanager
    def send(self, body: Body) -> Iterator[http.client.HTTPResponse]:
        connection = self.connect()
        try:
            base = urllib.parse.urlsplit(self.url).path
            path = body.path[1:] if body.path.startswith("//") else base + body.path
            headers = {**self.headers, "Content-Type": body.content_type}
            try:
                connection.request("POST" if body.data is not None else "GET", path, body.data, headers)
            except (BrokenPipeError, ConnectionResetError):
                # The server may have answered before the end of the body.
                if connection.sock is None:
                    raise
            yield connection.getresponse()
        finally:
            connection.close()

    def ask(self, body: Body) -> str:
        """Send and read all of the answer. Return its status, and for a refusal the beginning of its text."""
        try:
            with self.send(body) as answer:
                text = answer.read()
        except TimeoutError:
            return "no answer"
        except (OSError, http.client.HTTPException) as error:
            return type(error).__name__
        return str(answer.status) if answer.status < 300 else f"{answer.status} {_reason(text)}"


def _reason(text: bytes) -> str:
    """Return the message of an error in the form of any protocol, in one line."""
    try:
        document = json.loads(text)
        inner = document.get("error", document)
        reason = inner["message"] if isinstance(inner, dict) else inner
    except (ValueError, LookupError, AttributeError):
        reason = text.decode(errors="replace")
    return " ".join(str(reason).split())[:90]
