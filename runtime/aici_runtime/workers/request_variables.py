"""The variables of a request. They live in the guest's process until the request forks, then in a process of their own.

The process `aicirt-comms` has a socket to every worker of the request. Before a fork, the parent sends the socket of
the new fork (SCM_RIGHTS) with an empty message. The process ends with the last worker, or with the stepper.
"""

import selectors
import socket
import struct
from collections.abc import Callable
from typing import Any

import orjson

from aici_runtime import process
from aici_runtime.channels import socket_frames
from aici_runtime.guests.variables import Variables

PROCESS_NAME = "aicirt-comms"
_HEADER = struct.Struct("<I")
_CHUNK = 64 * 1024


class VariablesClient:
    """A worker's connection to the process of the variables. For use by one thread."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock

    def execute(self, command: dict[str, Any]) -> bytes:
        """Run a command. Raises ValueError for a refused command, ConnectionError when the process is gone."""
        try:
            socket_frames.send(self._sock, orjson.dumps(command))
            answer = socket_frames.receive(self._sock)
        except BrokenPipeError:
            answer = None
        if answer is None:
            raise ConnectionError("the variables of this request are gone")
        if answer.startswith(b'{"error"'):
            raise ValueError(orjson.loads(answer)["error"])
        return answer

    def client_for_fork(self) -> "VariablesClient":
        """Return a client for the next fork. The parent closes the client after the fork."""
        ours, theirs = socket.socketpair()
        with theirs:
            socket.send_fds(self._sock, [_HEADER.pack(0)], [theirs.fileno()])
        return VariablesClient(ours)

    def close(self) -> None:
        self._sock.close()


class RequestVariables:
    """The variables as seen by a worker. Raises the errors of VariablesClient."""

    def __init__(self, stepper_pidfd: int) -> None:
        self._stepper_pidfd = stepper_pidfd
        self._own = Variables()
        self._client: VariablesClient | None = None

    def execute(self, command: dict[str, Any]) -> bytes:
        """Run a command, here or in the process of the variables."""
        return _execute(self._own, command) if self._client is None else self._client.execute(command)

    def client_for_fork(self, forget_guest: Callable[[], None]) -> VariablesClient:
        """Return a client for the next fork. Raises OSError when no process can be started.

        `forget_guest` is called in the process of the variables, which has no use for the guest.
        """
        if self._client is None:
            self._client = self._start_server(forget_guest)
            self._own = Variables()
        return self._client.client_for_fork()

    def become(self, client: VariablesClient) -> None:
        """Take over a client in the fork."""
        self.close()
        self._client = client

    def close(self) -> None:
        if self._client is not None:
            self._client.close()

    def _start_server(self, forget_guest: Callable[[], None]) -> VariablesClient:
        ours, theirs = socket.socketpair()

        def serve_variables() -> None:
            process.set_name(PROCESS_NAME)
            ours.close()
            forget_guest()
            serve(self._own, theirs, self._stepper_pidfd)

        try:
            with theirs:
                process.fork_child(serve_variables)
        except BaseException:
            ours.close()
            raise
        return VariablesClient(ours)


class _Connection:
    """The bytes of a connection that do not form a whole message yet."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._pending = bytearray()
        self.received_fds: list[int] = []

    def receive(self) -> list[bytes] | None:
        """Return the whole messages, or None at the end of the connection."""
        try:
            data, fds, _, _ = socket.recv_fds(self.sock, _CHUNK, 4)
        except ConnectionResetError:
            return None
        self.received_fds += fds
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


def serve(variables: Variables, first: socket.socket, stepper_pidfd: int) -> None:
    """Serve until the last connection has ended."""
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
    while connection.received_fds:
        sock = socket.socket(fileno=connection.received_fds.pop())
        selector.register(sock, selectors.EVENT_READ, _Connection(sock))
    if messages is None:
        return False
    for message in messages:
        if not message:
            continue
        try:
            answer = _execute(variables, orjson.loads(message))
        except ValueError as error:
            answer = orjson.dumps({"error": str(error)})
        try:
            socket_frames.send(connection.sock, answer)
        except (BrokenPipeError, ConnectionResetError):
            return False
    return True


def _execute(variables: Variables, command: dict[str, Any]) -> bytes:
    try:
        return variables.execute(command)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"invalid storage command: {error!r}") from error
