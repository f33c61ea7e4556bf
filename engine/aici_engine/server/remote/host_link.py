"""A connection to the host of an engine, on the server's event loop."""

import asyncio
from collections.abc import Callable

from aici_engine.cluster.address import StageAddress
from aici_engine.cluster.link import CONNECT_S, WAN, LinkGroup, LinkLostError, StageLink, driver_name
from aici_engine.cluster.token import ClusterToken
from aici_engine.server.remote.host_messages import MAX_BODY_BYTES, FromHost, ToHost, decode_from_host

_TURN_FRAMES = 16
"""So many frames are read without a turn of the event loop for others."""


class HostLink:
    """Begins to connect at once; `ready` is done when the host has answered. `received` gets every message and its
    body. `lost` is called once, after the last message, when the connection is lost; `close` does not call it.

    Raises as StageLink.
    """

    def __init__(
        self,
        token: ClusterToken,
        address: StageAddress,
        *,
        received: Callable[[FromHost, bytearray], None],
        lost: Callable[[LinkLostError], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self.ready: asyncio.Future[None] = self._loop.create_future()
        self._received = received
        self._lost = lost
        self._group = LinkGroup(token, role="driver", name=driver_name(), insecure=address.key is None)
        try:
            self._link: StageLink[FromHost] = StageLink(
                self._group, address, decode_from_host, max_body_bytes=MAX_BODY_BYTES, to="engine", heartbeats=WAN
            )
        except BaseException:
            self._group.close()
            raise
        self._fds = self._link.fds
        for descriptor in self._fds:
            self._loop.add_reader(descriptor, self._read)
        self._next_read: asyncio.Handle = self._loop.call_soon(self._read)
        self._patience = self._loop.call_later(CONNECT_S, self._give_up)

    def send(self, message: ToHost, body: bytes = b"") -> None:
        """Send a message; never waits. A message to a lost connection is lost: `lost` follows."""
        if self._fds and self._link.lost is None:
            self._link.send(message, body)
            self._read_soon()

    async def close(self) -> None:
        """Close the connection. What was sent just before has half a second to leave. Idempotent."""
        self._stop()
        await asyncio.to_thread(self._group.close)

    def _read(self) -> None:
        try:
            if not self.ready.done():
                if not self._link.is_ready(0):
                    return
                self._patience.cancel()
                self.ready.set_result(None)
            for _ in range(_TURN_FRAMES):
                if not self._fds or (found := self._link.receive(0)) is None:
                    return
                self._received(found.message, found.body)
            self._read_soon()
        except LinkLostError as error:
            self._fail(error)

    def _read_soon(self) -> None:
        """Read once more: the descriptor of a socket tells of a change once, and whoever sends takes note of it."""
        self._next_read.cancel()
        self._next_read = self._loop.call_soon(self._read)

    def _give_up(self) -> None:
        self._fail(LinkLostError(f"{self._link.address.endpoint} has not answered within {CONNECT_S:g} s"))

    def _fail(self, why: LinkLostError) -> None:
        self._stop()
        if not self.ready.done():
            self.ready.set_exception(why)
        else:
            self._lost(why)

    def _stop(self) -> None:
        self._patience.cancel()
        self._next_read.cancel()
        fds, self._fds = self._fds, []
        for descriptor in fds:
            self._loop.remove_reader(descriptor)
