"""Places of engines on the nodes of a cluster: the node daemons keep the hosts, one engine a node."""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Sequence
from typing import Final

from aici_base.errors import UnavailableError
from aici_engine.cluster.address import StageAddress
from aici_engine.cluster.members import Members, RoomClaim
from aici_engine.cluster.node_links import NodeLinks, NodeView
from aici_engine.cluster.node_messages import EndStage, RunStage, StageReport
from aici_engine.server.link.supervisor import NoPlaceError

_MIB: Final = 1 << 20

_log = logging.getLogger(__name__)


class NodePlaces:
    """Chooses the nodes of engines. Made and used on one event loop. Takes over `members` and `links`.

    `name`: under which the node daemons keep the hosts; a server with the same name finds the hosts, and their engines,
    of the server before. `needed_bytes`: nodes with less memory are of no use. The claims say which nodes are taken,
    and how many machines are missing: an autoscaler starts those.
    """

    def __init__(self, members: Members, links: NodeLinks, *, name: str, needed_bytes: int) -> None:
        self._members = members
        self._links = links
        self._name = name
        self._needed_bytes = needed_bytes
        self._given: dict[NodePlace, str] = {}
        """The addresses of the nodes' daemons."""
        self._searching: set[NodePlace] = set()
        self._told: set[NodePlace] = set()
        """Places that know that their node leaves."""
        self._left: set[str] = set()
        """Nodes that could not be told to end the host."""
        self._claims: list[RoomClaim] = []
        self._trouble = ""
        self._news = asyncio.Event()
        self._is_closed = False
        self._loop = asyncio.get_running_loop()
        links.watch(self._wake)

    def place(self) -> "NodePlace":
        return NodePlace(self)

    def close(self) -> None:
        """End all hosts, and give all nodes back. Idempotent."""
        if self._is_closed:
            return
        self._is_closed = True
        for view in self._links.nodes():
            if self._host(view) is not None:
                self._links.send(view.member.address, EndStage(self._name))
        self._members.claim([])
        self._links.close()
        self._members.close()

    def views(self) -> Sequence[NodeView]:
        """Return all nodes that ever were members."""
        return self._links.nodes()

    def node_of(self, place: "NodePlace") -> str:
        """Return the name of a place's node, empty without one."""
        given = self._given.get(place)
        return next((view.name for view in self._links.nodes() if view.member.address == given), "")

    async def find(self, place: "NodePlace", patience_s: float | None) -> StageAddress:
        """See `EnginePlace.find`."""
        self._searching.add(place)
        deadline = None if patience_s is None else time.monotonic() + patience_s
        try:
            while True:
                self._news.clear()
                try:
                    return self._find(place)
                except UnavailableError as error:
                    if error.message != self._trouble:
                        _log.info("%s", error.message)
                    self._trouble = error.message
                    left = None if deadline is None else deadline - time.monotonic()
                    if left is not None and left <= 0:
                        raise NoPlaceError(error.message, hint=error.hint) from error
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._news.wait(), left)
        finally:
            self._searching.discard(place)
            self._claim()

    def release(self, place: "NodePlace") -> None:
        """Give the node of a place back, and end the host there."""
        self._told.discard(place)
        if (address := self._given.pop(place, None)) is not None:
            self._left.add(address)
        self._end_left()
        self._claim()

    def _find(self, place: "NodePlace") -> StageAddress:
        """Raises UnavailableError while there is no node, or the host is starting."""
        views = self._links.nodes()
        usable = [view for view in views if self._is_usable(view)]
        mine = self._given.get(place)
        view = next((each for each in usable if each.member.address == mine), None)
        if view is None:
            taken = set(self._given.values())
            free = [each for each in usable if each.member.address not in taken]
            if not free:
                self._claim()
                raise UnavailableError(f"a replica waits for a node with {self._needed_bytes // _MIB} MiB{_why(views)}")
            # A host that a server before has left has an engine with weights, if all is well.
            view = max(free, key=lambda each: (self._host(each) is not None, _budget(each)))
            if mine is not None:
                self._left.add(mine)
            self._given[place] = view.member.address
            self._left.discard(view.member.address)
            self._told.discard(place)
            self._claim()
        host = self._host(view)
        if host is None:
            self._links.send(view.member.address, RunStage(self._name, "engine"))
        if host is None or not host.address:
            words = host.trouble.splitlines()[-1:] if host is not None else []
            raise UnavailableError(f"an engine is starting on {view.name}{''.join(f' ({word})' for word in words)}")
        return StageAddress.parse(host.address)

    def _is_usable(self, view: NodeView) -> bool:
        is_there = view.report is not None and view.lost_at is None and not view.report.is_leaving
        return is_there and _budget(view) >= self._needed_bytes

    def _host(self, view: NodeView) -> StageReport | None:
        stages = () if view.report is None else view.report.stages
        return next((stage for stage in stages if stage.pipeline == self._name), None)

    def _claim(self) -> None:
        """Claim the whole memory of each node with an engine, and a machine for each replica without a node."""
        if self._is_closed:
            return
        views = {view.member.address: view for view in self._links.nodes()}
        nodes = [views[address] for address in self._given.values() if address in views]
        missing = sum(place not in self._given for place in self._searching)
        claims = [RoomClaim(name=view.name, mib=max(1, _budget(view) // _MIB)) for view in nodes]
        claims += [RoomClaim(name=None, mib=max(1, -(-self._needed_bytes // _MIB)))] * missing
        if claims != self._claims:
            self._claims = claims
            self._members.claim(claims)

    def _end_left(self) -> None:
        """End the hosts on nodes that are not needed any more, as soon as the nodes can be told."""
        for view in self._links.nodes():
            address = view.member.address
            if address in self._left and view.lost_at is None and view.report is not None:
                self._left.discard(address)
                self._links.send(address, EndStage(self._name))

    def _wake(self) -> None:
        """Take news of a thread of `links`."""
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._changed)

    def _changed(self) -> None:
        if self._is_closed:
            return
        self._news.set()
        self._end_left()
        leaving = {view.member.address for view in self._links.nodes() if view.report and view.report.is_leaving}
        for place, address in list(self._given.items()):
            if address not in leaving:
                self._told.discard(place)
            elif place not in self._told and place not in self._searching:
                self._told.add(place)
                place.on_leaving()


class NodePlace:
    """See `EnginePlace`."""

    def __init__(self, places: NodePlaces) -> None:
        self._places = places
        self.on_leaving: Callable[[], None] = lambda: None

    @property
    def node(self) -> str:
        return self._places.node_of(self)

    async def find(self, patience_s: float | None) -> StageAddress:
        return await self._places.find(self, patience_s)

    def release(self) -> None:
        self._places.release(self)


def _budget(view: NodeView) -> int:
    return 0 if view.report is None else view.report.budget_bytes


def _why(views: Sequence[NodeView]) -> str:
    """Return why known nodes are of no use."""
    away = [f"{view.name}: {view.trouble}" for view in views if view.lost_at is not None and view.trouble]
    return f" ({'; '.join(away)})" if away else ""
