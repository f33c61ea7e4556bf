"""Plans over real node daemons: what happens when nodes come, go, hang and leave. Stages are small scripts."""

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from aici_base.errors import UnavailableError
from aici_engine.cluster import placement as placement_module
from aici_engine.cluster.assembly import StagePlaces
from aici_engine.cluster.control_socket import ask
from aici_engine.cluster.headers import ModelSizes, PartSize
from aici_engine.cluster.members import Member, RoomClaim
from aici_engine.cluster.node_links import NodeLinks
from aici_engine.cluster.placement import ClusterPlacement
from aici_engine.cluster.plan import NodeInfo, PlanRequest
from tests.support.node_daemons import A_STAGE, TOKEN, ChangingMembers, RunningDaemon
from tests.support.processes import alive, wait_until

MB = 1_000_000
SIZES = ModelSizes(
    name="Tiny",
    dtype="bfloat16",
    layers=(PartSize(MB, 0, ("layer",)),) * 9,
    embedding=PartSize(MB, 0, ("embedding",)),
    head=PartSize(0, 0, ("head",)),
    positions=PartSize(0, 0),
    tied=True,
    kv_numbers=(100,) * 9,
    head_dim=10,
    hidden_size=1,
    intermediate_size=1,
    vocab_size=1,
    context=2048,
)


class Cluster:
    """Daemons of nodes that hold three layers each, and a driver that holds three."""

    def __init__(self, folder: Path, stack: contextlib.ExitStack) -> None:
        self.folder, self.stack = folder, stack
        self.members = ChangingMembers()
        self.daemons: dict[str, RunningDaemon] = {}

    def add(self, name: str, *, mb: float = 12, stage: str = A_STAGE, **facts: float) -> RunningDaemon:
        daemon = RunningDaemon(self.folder, name, stage=stage, budget_bytes=int(mb * MB), **facts)
        self.stack.callback(daemon.stop)
        self.daemons[name] = daemon
        self.members.set(*self.members.members, Member(name=name, address=daemon.address))
        return daemon

    def say_gone(self, name: str) -> None:
        self.members.set(
            *(
                m if m.name != name else Member(name=m.name, address=m.address, is_gone=True)
                for m in self.members.members
            )
        )

    def driver(self, *, mb: float = 12, **given: float) -> ClusterPlacement:
        links = NodeLinks(self.members, TOKEN, name="driver")
        request = PlanRequest(sizes=SIZES, dtype="bfloat16", num_pages=10, max_batch_tokens=64)
        me = NodeInfo(name="driver", budget_bytes=int(mb * MB), bytes_per_s=1e10)
        settings = {"pipeline": "tiny", "model": b"m" * 32, "min_nodes": 2, **given}
        found = ClusterPlacement(self.members, links, TOKEN, request, me, **settings)
        self.stack.callback(found.close, keep_stages=True)
        return found

    def pids(self) -> dict[str, int]:
        return {name: self.state(name)["stages"][0]["pid"] for name in self.daemons if self.state(name)["stages"]}

    def state(self, name: str) -> dict[str, object]:
        (report,) = ask(self.daemons[name].control, "status")
        return report


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with contextlib.ExitStack() as stack:
        yield Cluster(tmp_path, stack)


def found(placement: ClusterPlacement, timeout_s: float = 20) -> StagePlaces:
    """Call `find` as an executor does, until the stages are there."""
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            return placement.find()
        except UnavailableError:
            assert time.monotonic() < deadline
            time.sleep(0.05)


def node_of(placement: ClusterPlacement) -> list[str]:
    assert placement.plan is not None
    return [stage.node.name for stage in placement.plan.stages]


def test_a_plan_waits_for_nodes_and_for_room(cluster: Cluster) -> None:
    placement = cluster.driver()
    with pytest.raises(UnavailableError, match="0 of 2 have joined"):
        placement.find()
    cluster.add("a", mb=5)
    cluster.add("b", mb=3)
    with pytest.raises(UnavailableError, match=r"waiting for nodes: the model does not fit: short by"):
        found_or_raise(placement, "does not fit")
    assert [claim.name for claim in cluster.members.claims] == [None]
    assert cluster.members.claims[0].mib >= 1
    cluster.add("c")
    places = found(placement)
    assert len(places.addresses) == len(node_of(placement)) - 1
    assert {claim.name for claim in cluster.members.claims} == set(node_of(placement)) - {"driver"}
    assert all(isinstance(claim, RoomClaim) and claim.mib > 0 for claim in cluster.members.claims)


def found_or_raise(placement: ClusterPlacement, words: str) -> None:
    """Call `find` until it raises an error with these words."""
    for _ in range(100):
        try:
            placement.find()
        except UnavailableError as error:
            if words in error.message:
                raise
        time.sleep(0.05)


def test_the_next_driver_finds_the_same_stages(cluster: Cluster) -> None:
    cluster.add("a")
    cluster.add("b")
    first = cluster.driver()
    places, plan = found(first), first.plan
    pids = cluster.pids()
    first.close(keep_stages=True)
    second = cluster.driver()
    assert found(second) == places
    assert plan is not None
    assert second.plan is not None
    assert [(s.node.name, s.part) for s in second.plan.stages] == [(s.node.name, s.part) for s in plan.stages]
    assert cluster.pids() == pids
    assert any(stage.node.held for stage in second.plan.stages)
    second.close()
    assert wait_until(lambda: not alive(set(pids.values())), 10)


def test_a_killed_stage_comes_back_on_its_node(cluster: Cluster) -> None:
    cluster.add("a")
    cluster.add("b")
    placement = cluster.driver()
    before, pids = found(placement), cluster.pids()
    os.kill(pids["a"], signal.SIGKILL)
    assert wait_until(lambda: cluster.pids()["a"] not in (0, pids["a"]), 10)
    after = until_other(placement, before)
    assert after.cuts == before.cuts
    assert len(set(after.addresses) & set(before.addresses)) == 1
    assert cluster.pids()["b"] == pids["b"]


def until_other(placement: ClusterPlacement, before: StagePlaces, timeout_s: float = 20) -> StagePlaces:
    deadline = time.monotonic() + timeout_s
    while (after := found(placement)) == before:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return after


def test_a_stage_that_hangs_is_killed(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placement_module, "_PROBE_S", 0.5)
    cluster.add("a")
    cluster.add("b")
    placement = cluster.driver()
    before, pids = found(placement), cluster.pids()
    os.kill(pids["b"], signal.SIGSTOP)
    after = until_other(placement, before)
    assert after.cuts == before.cuts
    assert cluster.pids()["a"] == pids["a"]
    assert not alive({pids["b"]})


@pytest.mark.parametrize("mb", [12, 30])
def test_a_spare_takes_the_range_of_a_lost_node(cluster: Cluster, monkeypatch: pytest.MonkeyPatch, mb: int) -> None:
    monkeypatch.setattr(placement_module, "SPARE_AFTER_S", 0.5)
    cluster.add("a")
    cluster.add("b")
    placement = cluster.driver()
    found(placement)
    cluster.add("c", mb=mb, bytes_per_s=3e10)
    pids = cluster.pids()
    plan = placement.plan
    cluster.daemons["a"].stop()
    until(lambda: set(node_of(placement)) == {"b", "c", "driver"}, placement)
    assert placement.plan is not None
    assert plan is not None
    assert [stage.part for stage in placement.plan.stages] == [stage.part for stage in plan.stages]
    del cluster.daemons["a"], pids["a"]
    assert cluster.pids()["b"] == pids["b"]


def until(done: Callable[[], bool], placement: ClusterPlacement, timeout_s: float = 20) -> None:
    deadline = time.monotonic() + timeout_s
    while True:
        with contextlib.suppress(UnavailableError):
            placement.find()
            if done():
                return
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_layers_move_only_when_a_node_is_gone(cluster: Cluster) -> None:
    for name in "abc":
        cluster.add(name, mb=20)
    placement = cluster.driver()
    found(placement)
    used = [name for name in node_of(placement) if name != "driver"]
    cluster.daemons[used[0]].stop()
    with pytest.raises(UnavailableError, match="is away: "):
        found_or_raise(placement, "is away")
    cluster.say_gone(used[0])
    until(lambda: used[0] not in node_of(placement), placement)


def test_a_node_that_comes_back_in_time_goes_on(cluster: Cluster) -> None:
    cluster.add("a")
    cluster.add("b")
    placement = cluster.driver()
    before = found(placement)
    cluster.daemons["a"].stop()
    with pytest.raises(UnavailableError):
        found_or_raise(placement, "a")
    cluster.daemons["a"].start()
    after = until_other(placement, before)
    assert after.cuts == before.cuts


def test_a_node_leaves_when_a_spare_is_there(cluster: Cluster) -> None:
    cluster.add("a")
    cluster.add("b")
    placement = cluster.driver()
    found(placement)
    answers = ask(cluster.daemons["a"].control, "leave")
    assert next(answers) == {"stages": 1}
    rest: list[dict[str, object]] = []
    waiting = threading.Thread(target=lambda: rest.extend(answers), daemon=True)
    waiting.start()
    found(placement)  # nobody else has room: the stage stays
    assert "a" in node_of(placement)
    cluster.add("c")
    waiting.join(20)
    assert rest == [{"stages": 0}]
    until(lambda: set(node_of(placement)) == {"b", "c", "driver"}, placement)


def test_the_last_node_does_not_leave_though_the_driver_has_room(cluster: Cluster) -> None:
    cluster.add("a")
    placement = cluster.driver(mb=100, min_nodes=1)
    before = found(placement)
    assert node_of(placement) == ["a", "driver"]
    answers = ask(cluster.daemons["a"].control, "leave")
    assert next(answers) == {"stages": 1}
    until(lambda: placement.status()[0]["state"] == "leaving", placement)
    assert found(placement) == before
    cluster.add("b")
    assert next(answers) == {"stages": 0}
    until(lambda: node_of(placement) == ["b", "driver"], placement)


_ENDS_SLOWLY = """
import os, signal, time
signal.signal(signal.SIGTERM, lambda *_: (server.close(), time.sleep(1), os._exit(0)))
print(server"""


def test_a_stage_that_leaves_is_not_called_silent(
    cluster: Cluster, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(placement_module, "_PROBE_S", 0.2)
    cluster.add("a", stage=A_STAGE.replace("print(server", _ENDS_SLOWLY.strip("\n")))
    cluster.add("b")
    placement = cluster.driver()
    found(placement)
    cluster.add("c")
    until(lambda: len(placement.status()) == 3, placement)
    next(ask(cluster.daemons["a"].control, "drain"))
    until(lambda: set(node_of(placement)) == {"b", "c", "driver"}, placement)
    assert "does not answer" not in caplog.text
