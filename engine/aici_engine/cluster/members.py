"""Which machines belong to the cluster: a protocol, and a fixed list of machines as its simplest implementation."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from aici_base.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A machine of the cluster.

    `address`: `tcp://HOST:PORT#KEY` of its node daemon. `is_gone`: the machine has left, or has been silent too long to
    be expected back.
    """

    name: str
    address: str
    is_gone: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RoomClaim:
    """Memory that a pipeline needs: on the member `name`, or, without a name, on a machine that is still missing."""

    name: str | None
    mib: int


class Members(Protocol):
    """The machines of the cluster, as far as they are known. Methods return at once and may be called by any thread."""

    def current(self) -> Sequence[Member]:
        """Return the machines, as last heard. Nothing changes while the source of the news is away."""

    def notify(self, changed: Callable[[], None]) -> None:
        """Call `changed` after each change of `current`, from any thread."""

    def claim(self, rooms: Sequence[RoomClaim]) -> None:
        """Replace the claims of this pipeline. Other pipelines get what is left; missing machines may be started."""

    def close(self) -> None: ...


class StaticMembers:
    """Machines given by the addresses of their node daemons. They never change, and claims have no effect.

    >>> members = StaticMembers(["tcp://10.0.0.2:4300#KEY"])
    >>> members.current()[0].name
    '10.0.0.2:4300'
    """

    def __init__(self, addresses: Sequence[str]) -> None:
        self._members = [Member(name=_name(address), address=address) for address in addresses]

    def current(self) -> Sequence[Member]:
        return self._members

    def notify(self, changed: Callable[[], None]) -> None:
        pass

    def claim(self, rooms: Sequence[RoomClaim]) -> None:
        pass

    def close(self) -> None:
        pass


def _name(address: str) -> str:
    place, hash_sign, key = address.removeprefix("tcp://").partition("#")
    if not address.startswith("tcp://") or not hash_sign or not key:
        raise UsageError(
            f"{address!r} is no address of a node",
            hint="an address is tcp://HOST:PORT#KEY: the first line that `aici node join` prints",
        )
    return place
