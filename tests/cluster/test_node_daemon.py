"""A node daemon with stages that are small scripts: real sockets, real processes."""

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from aici_base.errors import AiciError, InUseError
from aici_engine.cluster.address import StageAddress
from aici_engine.cluster.control_socket import ask
from aici_engine.cluster.frames import FrameError, HeldRange, encode
from aici_engine.cluster.link_server import KeyPair
from aici_engine.cluster.members import Member, StaticMembers
from aici_engine.cluster.node_daemon import NodeDaemon, NodeSettings
from aici_engine.cluster.node_links import NodeLinks, NodeView
from aici_engine.cluster.node_messages import (
    MAX_STAGES,
    EndStage,
    KillStage,
    NoteRange,
    RunStage,
    StageReport,
    decode_to_node,
)
from aici_engine.cluster.token import ClusterToken
from tests.support.node_daemons import TOKEN, ChangingMembers, RunningDaemon, machine
from tests.support.processes import alive, wait_until

HELD = HeldRange(b"k" * 32, 0, 4, True, False, "int8")


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[RunningDaemon]:
    running = RunningDaemon(tmp_path)
    try:
        yield running
    finally:
        running.stop()


@pytest.fixture
def links(daemon: RunningDaemon) -> Iterator[NodeLinks]:
    with NodeLinks(StaticMembers([daemon.address]), TOKEN, name="driver") as links:
        yield links


def wait_for(links: NodeLinks, is_so: Callable[[NodeView], bool], timeout_s: float = 20) -> NodeView:
    """Wait until the only node is as wanted."""
    deadline = time.monotonic() + timeout_s
    while True:
        since = links.num_changes
        (view,) = links.nodes()
        if is_so(view):
            return view
        assert links.wait_change(since, deadline - time.monotonic()), view


def stage_of(view: NodeView) -> StageReport | None:
    return view.report.stages[0] if view.report and view.report.stages else None


def running(links: NodeLinks, address: str, *, not_at: str = "") -> StageReport:
    links.send(address, RunStage("p"))
    view = wait_for(links, lambda view: (s := stage_of(view)) is not None and s.address not in ("", not_at))
    stage = stage_of(view)
    assert stage is not None
    return stage


def test_a_node_says_what_it_is(daemon: RunningDaemon, links: NodeLinks) -> None:
    view = wait_for(links, lambda view: view.report is not None)
    assert view.report == machine("a")
    assert (view.name, view.lost_at, view.trouble) == ("a", None, "")
    assert 0 < view.rtt_s < 5


def test_a_stage_is_started_once_and_keeps_its_note(daemon: RunningDaemon, links: NodeLinks) -> None:
    stage = running(links, daemon.address)
    links.send(daemon.address, NoteRange("p", stage.address, HELD))
    links.send(daemon.address, RunStage("p"))
    with NodeLinks(StaticMembers([daemon.address]), TOKEN, name="later") as later:
        held = stage_of(wait_for(later, lambda view: (s := stage_of(view)) is not None and s.held is not None))
    assert held is not None
    assert (held.pid, held.held, held.num_starts) == (stage.pid, HELD, 1)


def test_a_killed_stage_comes_back_without_its_note(daemon: RunningDaemon, links: NodeLinks) -> None:
    stage = running(links, daemon.address)
    links.send(daemon.address, NoteRange("p", stage.address, HELD))
    wait_for(links, lambda view: (s := stage_of(view)) is not None and s.held is not None)
    os.kill(stage.pid, 9)
    after = running(links, daemon.address, not_at=stage.address)
    assert (after.num_starts, after.held) == (2, None)
    links.send(daemon.address, KillStage("p", stage.address))  # meant for the life before
    links.send(daemon.address, NoteRange("p", stage.address, HELD))
    links.send(daemon.address, KillStage("p", after.address))
    last = running(links, daemon.address, not_at=after.address)
    assert (last.num_starts, last.held) == (3, None)


def test_a_node_starts_no_more_stages_than_a_report_holds(tmp_path: Path) -> None:
    daemon = RunningDaemon(tmp_path, stage="import time; time.sleep(600)")
    try:
        with NodeLinks(StaticMembers([daemon.address]), TOKEN, name="driver") as links:
            wait_for(links, lambda view: view.report is not None)
            for number in range(MAX_STAGES + 2):
                links.send(daemon.address, RunStage(f"p{number}"))
            wait_for(links, lambda view: view.report is not None and len(view.report.stages) == MAX_STAGES, 60)
            links.send(daemon.address, EndStage("p0"))
            links.send(daemon.address, RunStage("one more"))
            report = wait_for(
                links, lambda view: view.report is not None and view.report.stages[-1].pipeline == "one more", 60
            ).report
        with NodeLinks(StaticMembers([daemon.address]), TOKEN, name="later") as later:
            assert report is not None
            assert len(report.stages) == MAX_STAGES
            wait_for(later, lambda view: view.report is not None and len(view.report.stages) == MAX_STAGES)
    finally:
        daemon.stop()


def test_a_stage_ends_when_the_pipeline_or_the_daemon_does(daemon: RunningDaemon, links: NodeLinks) -> None:
    first = running(links, daemon.address)
    links.send(daemon.address, EndStage("p"))
    wait_for(links, lambda view: stage_of(view) is None)
    assert not alive({first.pid})
    second = running(links, daemon.address)
    daemon.stop()
    assert wait_until(lambda: not alive({second.pid}), 5)
    wait_for(links, lambda view: view.lost_at is not None)


def test_a_daemon_that_comes_back_is_found_again(daemon: RunningDaemon, links: NodeLinks) -> None:
    wait_for(links, lambda view: view.report is not None)
    daemon.stop()
    lost = wait_for(links, lambda view: view.lost_at is not None)
    assert "lost" in lost.trouble
    daemon.start()
    wait_for(links, lambda view: view.lost_at is None)
    running(links, daemon.address)


def test_a_stranger_hears_nothing(daemon: RunningDaemon) -> None:
    with NodeLinks(StaticMembers([daemon.address]), ClusterToken.new(), name="stranger") as links:
        view = wait_for(links, lambda view: bool(view.trouble))
    assert view.report is None
    assert "the cluster tokens differ" in view.trouble


def test_a_member_with_a_new_address_replaces_the_old(daemon: RunningDaemon, tmp_path: Path) -> None:
    members = ChangingMembers(Member(name="a", address=f"tcp://127.0.0.1:1#{'00' * 32}"))
    with NodeLinks(members, TOKEN, name="driver") as links:
        wait_for(links, lambda view: "no connection" in view.trouble)
        members.set(Member(name="a", address=daemon.address))
        wait_for(links, lambda view: view.report is not None)
        members.set(Member(name="a", address=daemon.address, is_gone=True))
        wait_for(links, lambda view: view.member.is_gone)


def test_a_node_that_leaves_waits_for_its_stages(daemon: RunningDaemon, links: NodeLinks) -> None:
    running(links, daemon.address)
    answers = ask(daemon.control, "leave")
    assert next(answers) == {"stages": 1}
    view = wait_for(links, lambda view: view.report is not None and view.report.is_leaving)
    links.send(daemon.address, RunStage("another"))
    links.send(daemon.address, EndStage("p"))
    assert list(answers) == [{"stages": 0}]
    view = wait_for(links, lambda view: view.lost_at is not None)
    assert view.report is not None
    assert view.report.stages == []


def test_the_user_of_the_machine_sees_the_state(daemon: RunningDaemon, links: NodeLinks) -> None:
    stage = running(links, daemon.address)
    links.send(daemon.address, NoteRange("p", stage.address, HELD))
    wait_for(links, lambda view: (s := stage_of(view)) is not None and s.held is not None)
    (report,) = ask(daemon.control, "status")
    assert report["address"] == daemon.address
    assert report["stages"][0]["held"] == {"first": 0, "last": 4, "embedding": True}
    assert daemon.control.stat().st_mode & 0o777 == 0o600
    with pytest.raises(AiciError, match="does not know 'dance'"):
        list(ask(daemon.control, "dance"))
    assert list(ask(daemon.control, "undrain")) == [{"stages": 1}]


def test_a_name_is_taken_once(daemon: RunningDaemon) -> None:
    with pytest.raises(InUseError, match="a node daemon of the name a runs"):
        NodeDaemon(
            NodeSettings(
                listen=StageAddress("127.0.0.1", 0),
                keys=KeyPair.new(),
                token=TOKEN,
                machine=machine("a"),
                stage_command=[],
                control=daemon.control,
            )
        )


def test_a_stage_that_cannot_start_is_reported(tmp_path: Path) -> None:
    daemon = RunningDaemon(tmp_path, stage="print('no such model'); raise SystemExit(2)")
    try:
        with NodeLinks(StaticMembers([daemon.address]), TOKEN, name="driver") as links:
            links.send(daemon.address, RunStage("p"))
            wait_for(links, lambda view: view.report is not None)
            links.send(daemon.address, RunStage("p"))
            view = wait_for(links, lambda view: (s := stage_of(view)) is not None and bool(s.trouble))
        stage = stage_of(view)
        assert stage is not None
        assert "no such model" in stage.trouble
    finally:
        daemon.stop()


@pytest.mark.parametrize("name", ["\x1b]0;title\x07", "two\nlines", "\x9b2J"])
def test_a_pipeline_has_no_control_characters_in_its_name(name: str) -> None:
    for message in (RunStage(name), EndStage(name)):
        with pytest.raises(FrameError):
            decode_to_node(encode(message))
