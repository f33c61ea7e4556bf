"""Reads the frames of an engine process on the event loop."""

import asyncio
from collections.abc import Callable
from typing import Final

import zmq

_TURN_FRAMES: Final = 16
"""So many frames are read without a turn of the event loop for others."""


class EventFrames:
    """A PULL socket whose frames go to `receive`, called on the event loop that runs now.

    A reader of `zmq.asyncio` makes a future and asks for the socket's state several times per frame. At a frame per
    engine step, those calls took a fifth of the API process's time.
    """

    def __init__(self, context: "zmq.Context[zmq.Socket[bytes]]", receive: Callable[[bytes], None]) -> None:
        self._receive = receive
        self._loop = asyncio.get_running_loop()
        self._socket = context.socket(zmq.PULL)
        self._socket.set_hwm(0)
        self._socket.linger = 0
        self._descriptor = int(self._socket.getsockopt(zmq.FD))
        self._loop.add_reader(self._descriptor, self._read)

    def bind(self, address: str) -> None:
        self._socket.bind(address)
        self._loop.call_soon(self._read)

    def close(self) -> None:
        """Close the socket. Idempotent. `receive` is not called any more."""
        if not self._socket.closed:
            self._loop.remove_reader(self._descriptor)
            self._socket.close()

    def _read(self) -> None:
        """Read all frames: the descriptor tells of a change once, and not again while frames are left."""
        for _ in range(_TURN_FRAMES):
            if self._socket.closed:
                return
            try:
                frame = self._socket.recv(zmq.NOBLOCK)
            except zmq.Again:
                return
            try:
                self._receive(frame)
            except BaseException:
                self._loop.call_soon(self._read)  # nothing else tells of the frames that are left
                raise
        self._loop.call_soon(self._read)
