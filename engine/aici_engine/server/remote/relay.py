"""The host's side of a replica: passes messages between an engine of this machine and a server elsewhere."""

import asyncio
from collections.abc import Callable

from aici_engine.server.link import wire
from aici_engine.server.link.client import Link


class Relay:
    """The owner of an engine's messages, as `EngineClient` is in a server. Everything runs on one event loop.

    `send` gets a frame of messages for the server; nothing is sent between `detach` and `attach`. `busy` is set while
    streams or calls are open, `idle` while none is.
    """

    def __init__(self, send: Callable[[list[wire.FromEngine]], None]) -> None:
        self.info: wire.EngineInfo | None = None
        self.busy, self.idle = asyncio.Event(), asyncio.Event()
        self.idle.set()
        self.silence: Callable[[], float] = lambda: 0.0
        self._send = send
        self._link: Link | None = None
        self._is_attached = False
        self._streams: set[int] = set()
        self._calls: set[int] = set()
        self._unsent: list[wire.FromEngine] = []

    def attach(self) -> None:
        """Let a server use the engine from now on. Call when `idle` is set: numbers of streams may come again."""
        assert self.info is not None
        self._is_attached = True
        self.receive(wire.Ready(self.info))

    def detach(self) -> None:
        """End all streams: the server is gone."""
        self._is_attached = False
        self._unsent.clear()
        for stream in self._streams:
            self._to_engine(wire.Abort(stream))

    def take(self, message: wire.ToEngine) -> None:
        """Pass a message of the server to the engine. Without an engine, the message is dropped."""
        if not self._is_attached:
            return
        if isinstance(message, wire.Submit):
            self._streams.add(message.stream)
        elif isinstance(message, wire.EngineCall):
            self._calls.add(message.call)
        self._to_engine(message)
        self._note_work()

    def connected(self, link: Link, info: wire.EngineInfo, silence: Callable[[], float] | None = None) -> None:
        """Record that the engine is up."""
        self._link, self.info = link, info
        self.silence = silence or self.silence

    def receive(self, message: wire.FromEngine) -> None:
        """Take a message of the engine."""
        if isinstance(message, wire.FinishOut):
            self._streams.discard(message.stream)
            self._note_work()
        elif isinstance(message, wire.Reply):
            self._calls.discard(message.call)
            self._note_work()
        if self._is_attached:
            if not self._unsent:
                # The engine sends a frame per step, whose messages come here one by one.
                asyncio.get_running_loop().call_soon(self._flush)
            self._unsent.append(message)

    def lost(self) -> None:
        """Record that the engine has ended."""
        self._link = self.info = None
        self._is_attached = False
        self._streams.clear()
        self._calls.clear()
        self._unsent.clear()
        self._note_work()

    def _to_engine(self, message: wire.ToEngine) -> None:
        if self._link is not None:
            self._link.send(message)

    def _flush(self) -> None:
        if self._unsent:
            messages, self._unsent = self._unsent, []
            self._send(messages)

    def _note_work(self) -> None:
        if self._streams or self._calls:
            self.busy.set()
            self.idle.clear()
        else:
            self.busy.clear()
            self.idle.set()
