"""Where the engines of replicas run: a protocol, and fixed addresses as its simplest implementation."""

from collections.abc import Callable, Sequence
from typing import Protocol

from aici_engine.cluster.address import StageAddress


class EnginePlace(Protocol):
    """The place of a replica. Used on one event loop. `on_leaving` is called when the machine is about to leave."""

    on_leaving: Callable[[], None]

    @property
    def node(self) -> str:
        """The name of the machine, empty while there is none."""

    async def find(self, patience_s: float | None) -> StageAddress:
        """Return the address of a host for an engine, at another machine than before if that machine is gone.

        Raises NoPlaceError if no machine is found within `patience_s` seconds; None waits without an end.
        """

    def release(self) -> None:
        """Give the machine back."""


class EnginePlaces(Protocol):
    """Makes places. A context manager."""

    def place(self) -> EnginePlace:
        """Return a further place, still without a machine."""

    def close(self) -> None: ...


class FixedPlaces:
    """Hosts at known addresses (`aici engine`), one replica each.

    >>> places = FixedPlaces(["tcp://10.0.0.2:7100#" + "ab" * 32])
    >>> places.place().node
    ''
    """

    def __init__(self, addresses: Sequence[str]) -> None:
        self._free = [StageAddress.parse(address) for address in addresses]

    def place(self) -> "FixedPlace":
        return FixedPlace(self._free)

    def close(self) -> None: ...


class FixedPlace:
    """Takes one of the free addresses, and keeps the address until `release`."""

    def __init__(self, free: list[StageAddress]) -> None:
        self._free = free
        self._mine: StageAddress | None = None
        self.on_leaving: Callable[[], None] = _stay

    @property
    def node(self) -> str:
        return "" if self._mine is None else self._mine.endpoint.removeprefix("tcp://")

    async def find(self, patience_s: float | None) -> StageAddress:  # noqa: ARG002 the address never changes
        if self._mine is None:
            self._mine = self._free.pop(0)
        return self._mine

    def release(self) -> None:
        if self._mine is not None:
            self._free.append(self._mine)
            self._mine = None


def _stay() -> None: ...
