"""A bound on open connections: a flood of them must leave descriptors for the engine, files and databases.

The bound is counted where connections are accepted, so that a connection in its TLS handshake counts too.
"""

import logging
import resource
import socket
from typing import Any, Final

from aici_base.errors import UsageError

_REFUSED: Final = 32
"""Connections beyond the bound that get an answer, status 503. Further connections are closed without an answer."""
_RESERVED: Final = 128
"""Descriptors for logs, databases, uploads and the engine process of a model; each further model takes _PER_MODEL."""
_PER_MODEL: Final = 32
_FEWEST: Final = 8
_MOST: Final = 65536

_log = logging.getLogger(__name__)


def most_connections(wanted: int | None, *, num_models: int) -> int:
    """Return the bound: `wanted`, or what the limit of open files leaves. Raises UsageError if that is too little."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    room = _MOST if files == resource.RLIM_INFINITY else files - _RESERVED - _PER_MODEL * num_models - _REFUSED
    if wanted is None:
        return max(_FEWEST, min(room, _MOST))
    if wanted > max(_FEWEST, room):
        raise UsageError(
            f"max_connections is {wanted}: the limit of {files} open files leaves {max(_FEWEST, room)}",
            hint="raise the limit of open files",
            cli_hint=f"`ulimit -n {wanted + files - room}` before, or LimitNOFILE of systemd",
        )
    return wanted


class Connections:
    """Counts the open connections of a server."""

    def __init__(self, most: int = _MOST) -> None:
        self.most = most
        self.num_open = 0
        self._is_told = False

    @property
    def are_too_many(self) -> bool:
        """Whether the newest connection gets an answer only that there are too many."""
        return self.num_open > self.most

    def opened(self) -> bool:
        """Count a connection. Return False for a connection to close at once, which is not counted."""
        if self.num_open >= self.most + _REFUSED:
            return False
        self.num_open += 1
        if self.are_too_many and not self._is_told:
            self._is_told = True
            _log.warning("%d connections are open, the most allowed: further ones get status 503", self.most)
        return True

    def closed(self) -> None:
        self.num_open -= 1
        if self.num_open <= self.most * 3 // 4:
            self._is_told = False


class Listener(socket.socket):
    """A socket whose accepted connections are counted."""

    connections: Connections

    def accept(self) -> tuple[socket.socket, Any]:
        accepted, address = super().accept()
        if not self.connections.opened():
            accepted.close()
            raise ConnectionAbortedError  # asyncio goes on with the next connection
        counted = _Counted(fileno=accepted.detach())
        counted.connections = self.connections
        return counted, address


class _Counted(socket.socket):
    connections: Connections | None

    def close(self) -> None:
        if self.connections is not None:
            self.connections.closed()
            self.connections = None
        super().close()
