"""The `aicirt-comms` process: one per request, keeps the variables of its guest and of all forks of it.

Every worker has a socket to it. Before a fork the parent sends it the new branch's socket (SCM_RIGHTS) with an empty
message. It ends when its last worker is gone (end of file), or the stepper is.
"""

import selectors
import socket
import struct
from typing import Any

import orjson

from aici_runtime import frames
from aici_runtime.variables import Variables

_HEADER = struct.Struct("<I")
_CHUNK = 64 * 1024


class VariablesClient:
    """A worker's end. Used by one thread."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock

    def execute(self, command: dict[str, Any]) -> bytes:
        """Raises ValueError for a command that was refused, ConnectionError when the other end is gone."""
        try:
            frames.send(self._sock, orjson.dumps(command))
            answer = frames.receive(self._sock)
        except BrokenPipeError:
            answer = None
        if answer is None:
            raise ConnectionError("the variables of this request are gone")
        if answer.startswith(b'{"error"'):
            raise ValueError(orjson.loads(answer)["error"])
        return answer

    def branch(self) -> "VariablesClient":
        """A client for a fork that is about to be made. The parent closes it after the fork."""
        ours, theirs = socket.socketpair()
        with theirs:
            socket.send_fds(self._sock, [_HEADER.pack(0)], [theirs.fileno()])
        return VariablesClient(ours)

    def close(self) -> None:
        self._sock.close()


class _Connection:
    """What has arrived from one worker and is not a whole message yet."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._pending = bytearray()
        self.adopted: list[int] = []

    def receive(self) -> list[bytes] | None:
        """Whole messages, or None at the end."""
        try:
            data, fds, _, _ = socket.recv_fds(self.sock, _CHUNK, 4)
        except ConnectionResetError:
            return None
        self.adopted += fds
        if not data:
            return None
        self._pending += data
        messages = []
        while len(self._pending) >= _HEADER.size:
            end = _HEADER.size + _HEADER.unpack_from(self._pending)[0]
            if len(self._pending) < end:
                break
            messages.append(bytes(self._pending[_HEADER.size : end]))
            del self._pending[:end]
        return messages


def serve(first: socket.socket, stepper_pidfd: int) -> None:
    """Returns when there is nobody left to serve."""
    variables = Variables()
    with selectors.DefaultSelector() as selector:
        selector.register(stepper_pidfd, selectors.EVENT_READ)
        selector.register(first, selectors.EVENT_READ, _Connection(first))
        while len(selector.get_map()) > 1:
            for key, _ in selector.select():
                if key.data is None:
                    return
                if not _serve_one(key.data, selector, variables):
                    selector.unregister(key.data.sock)
                    key.data.sock.close()


def _serve_one(connection: _Connection, selector: selectors.BaseSelector, variables: Variables) -> bool:
    messages = connection.receive()
    while connection.adopted:
        sock = socket.socket(fileno=connection.adopted.pop())
        selector.register(sock, selectors.EVENT_READ, _Connection(sock))
    if messages is None:
        return False
    for message in messages:
        if not message:
            continue
        try:
            answer = variables.execute(orjson.loads(message))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            answer = orjson.dumps({"error": f"invalid storage command: {error!r}"})
        try:
            frames.send(connection.sock, answer)
        except (BrokenPipeError, ConnectionResetError):
            return False
    return True
