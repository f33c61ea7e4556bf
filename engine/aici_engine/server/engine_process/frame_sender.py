"""Sends messages of the engine process to the API process, one frame per engine step."""

import threading
from typing import TYPE_CHECKING

from aici_engine.server.link import wire

if TYPE_CHECKING:
    import zmq


class FrameSender:
    """Collects messages from several threads; `flush` sends them as one frame."""

    def __init__(self, socket: "zmq.Socket[bytes]") -> None:
        self._socket = socket
        self._lock = threading.Lock()
        self._messages: list[wire.FromEngine] = []

    def send(self, message: wire.FromEngine) -> None:
        with self._lock:
            self._messages.append(message)

    def flush(self) -> None:
        # A zmq socket is not thread-safe: the lock lets several threads use the socket in turn.
        with self._lock:
            if self._messages:
                self._socket.send(wire.encode(self._messages))
                self._messages = []
