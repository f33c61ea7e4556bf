"""Requests that wait for another engine, because their engine died before they had given anything."""

import asyncio
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from aici_engine.server.link.stream import EngineStream

_ALONE_S: Final = 0.25
"""A replayed request is alone for so long, unless it gives something earlier. A request that kills engines does so at
once, and then no other request is taken for the reason."""


class Replays:
    """Holds streams, and sends them to the next engine in order of arrival.

    A stream sent to an engine that died may be the reason of the death. Such streams are sent one by one:
    each after the stream before has given something, or has computed for a moment. Other streams are sent at once.
    """

    def __init__(self, send: "Callable[[EngineStream], None]") -> None:
        self._send = send
        self._held: dict[int, EngineStream] = {}
        self._tried: EngineStream | None = None
        self._timer: asyncio.TimerHandle | None = None

    def hold(self, stream: "EngineStream") -> None:
        """Keep a stream until `begin`."""
        self._held[stream.number] = stream

    def holds(self, stream: "EngineStream") -> bool:
        """Return whether no engine of now knows the stream."""
        return stream.number in self._held

    def begin(self) -> None:
        """Send the streams: an engine is up."""
        while self._held and self._tried is None:
            stream = self._held.pop(min(self._held))
            if stream.num_deaths:
                self._tried = stream
                self._timer = asyncio.get_running_loop().call_later(_ALONE_S, self.heard, stream)
            self._send(stream)

    def heard(self, stream: "EngineStream") -> None:
        """Record that a stream has given something, has ended, or has computed for a moment."""
        self._held.pop(stream.number, None)
        if stream is self._tried:
            self._forget()
            self.begin()

    def pause(self) -> frozenset[int]:
        """Record that the engine is gone. Return the numbers of the held streams."""
        self._forget()
        return frozenset(self._held)

    def _forget(self) -> None:
        self._tried = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
