"""Sends the engine's messages to the API process."""

import threading
from typing import TYPE_CHECKING

from aici_engine.server.link import wire

if TYPE_CHECKING:
    import zmq


class FrameSender:
    """Collects what the threads have to say, and sends it in one frame a step."""

    def __init__(self, socket: "zmq.Socket[bytes]") -> None:
        self._socket = socket
        self._lock = threading.Lock()
        self._messages: list[wire.FromEngine] = []

    def send(self, message: wire.FromEngine) -> None:
        with self._lock:
            self._messages.append(message)

    def flush(self) -> None:
        # The lock is what lets several threads use the socket in turn.
        with self._lock:
            if self._messages:
                self._socket.send(wire.encode(self._messages))
                self._messages = []
