"""Engines on the nodes of a cluster: real daemons, with small scripts as hosts, and members that the test changes."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from aici_engine.cluster.control_socket import ask
from aici_engine.cluster.members import Member, RoomClaim
from aici_engine.cluster.node_links import NodeLinks
from aici_engine.server.link.supervisor import NoPlaceError
from aici_engine.server.remote.node_places import NodePlaces
from tests.support.node_daemons import TOKEN, ChangingMembers, RunningDaemon

MIB = 1 << 20
PATIENCE_S = 60.0


def member(daemon: RunningDaemon) -> Member:
    return Member(name=daemon.name, address=daemon.address)


def placed(members: ChangingMembers, main: Callable[[NodePlaces], Awaitable[None]]) -> None:
    """Run `main` with places for engines of 100 MiB."""

    async def limited() -> None:
        links = NodeLinks(members, TOKEN, name="a test")
        places = NodePlaces(members, links, name="replica of m", needed_bytes=100 * MIB)
        try:
            async with asyncio.timeout(2 * PATIENCE_S):
                await main(places)
        finally:
            await asyncio.to_thread(places.close)

    asyncio.run(limited())


def num_hosts(daemon: RunningDaemon) -> int:
    (report,) = ask(daemon.control, "status")
    return len(report["stages"])


async def until(found: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not await asyncio.to_thread(found):
            await asyncio.sleep(0.05)


def test_each_replica_has_a_node_and_a_missing_node_is_claimed(tmp_path: Path) -> None:
    """A node with too little memory has none; growth claims a machine, which then has the replica."""
    a = RunningDaemon(tmp_path, "a", budget_bytes=300 * MIB)
    small = RunningDaemon(tmp_path, "small", budget_bytes=99 * MIB)
    b = RunningDaemon(tmp_path, "b", budget_bytes=200 * MIB)
    members = ChangingMembers(member(a), member(small))

    async def main(places: NodePlaces) -> None:
        first, second = places.place(), places.place()
        address = await first.find(None)
        assert first.node == "a"
        assert await first.find(None) == address, "a place keeps its node"
        assert members.claims == [RoomClaim(name="a", mib=300)]
        with pytest.raises(NoPlaceError, match="waits for a node with 100 MiB"):
            await second.find(0.0)
        assert members.claims == [RoomClaim(name="a", mib=300)]
        finding = asyncio.create_task(second.find(None))
        await until(lambda: RoomClaim(name=None, mib=100) in members.claims)
        await asyncio.to_thread(members.set, member(a), member(small), member(b))
        assert await finding != address
        assert second.node == "b"
        assert members.claims == [RoomClaim(name="a", mib=300), RoomClaim(name="b", mib=200)]
        second.release()
        await until(lambda: num_hosts(b) == 0)
        assert members.claims == [RoomClaim(name="a", mib=300)]
        assert (first.node, second.node) == ("a", "")

    try:
        placed(members, main)
        assert [num_hosts(each) for each in (a, small, b)] == [0, 0, 0]
        assert members.claims == []
    finally:
        for daemon in (a, small, b):
            daemon.stop()


def test_a_lost_node_is_replaced(tmp_path: Path) -> None:
    a = RunningDaemon(tmp_path, "a", budget_bytes=300 * MIB)
    b = RunningDaemon(tmp_path, "b", budget_bytes=200 * MIB)
    members = ChangingMembers(member(a), member(b))

    async def main(places: NodePlaces) -> None:
        place = places.place()
        await until(lambda: all(view.report is not None for view in places.views()))
        await place.find(None)
        assert place.node == "a"
        await asyncio.to_thread(a.stop)
        await until(lambda: any(view.lost_at is not None for view in places.views()))
        await place.find(None)
        assert place.node == "b"
        assert members.claims == [RoomClaim(name="b", mib=200)]

    try:
        placed(members, main)
    finally:
        b.stop()


def test_a_leaving_node_is_told_once_and_takes_no_replica(tmp_path: Path) -> None:
    a = RunningDaemon(tmp_path, "a", budget_bytes=300 * MIB)
    b = RunningDaemon(tmp_path, "b", budget_bytes=200 * MIB)
    members = ChangingMembers(member(a), member(b))

    async def main(places: NodePlaces) -> None:
        place, other = places.place(), places.place()
        told: list[str] = []
        place.on_leaving = lambda: told.append(place.node)
        await until(lambda: all(view.report is not None for view in places.views()))
        await place.find(None)
        answers = ask(a.control, "drain")
        assert (await asyncio.to_thread(next, answers))["stages"] == 1
        await until(lambda: told == ["a"])
        await other.find(None)
        assert other.node == "b"
        place.release()
        await until(lambda: num_hosts(a) == 0)
        assert told == ["a"]
        assert (await asyncio.to_thread(list, answers))[-1]["stages"] == 0
        with pytest.raises(NoPlaceError):
            await place.find(0.0)

    try:
        placed(members, main)
    finally:
        for daemon in (a, b):
            daemon.stop()
