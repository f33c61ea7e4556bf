"""Ray on this machine: a head, a node, and what is heard of the node."""

import contextlib
import importlib.util
import os
import socket
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import wait
from pathlib import Path

import pytest

from aici_engine.cluster import ray_labels, ray_start
from aici_engine.cluster.kept_process import KeptProcess
from aici_engine.cluster.members import Member, RoomClaim
from aici_engine.cluster.ray_members import RayMembers
from tests.support.processes import alive, descendants, wait_until

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="ray is not installed (aici[cluster])"),
    pytest.mark.xdist_group("ray"),
]

RAY_TOKEN = "a" * 64
ADDRESS = "tcp://127.0.0.1:4300#a-key"


class Owner:
    """Runs the loop of kept processes, and ends them."""

    def __init__(self) -> None:
        self.processes: list[KeptProcess] = []

    def add(self, process: KeptProcess) -> KeptProcess:
        self.processes.append(process)
        return process

    def until(self, done: Callable[[], bool], timeout_s: float = 60) -> float:
        begin = time.monotonic()
        while not done():
            assert time.monotonic() - begin < timeout_s, "\n".join(p.last_words() for p in self.processes)
            for process in self.processes:
                process.advance()
            wait([fd for process in self.processes for fd in process.fds], 0.05)
        return time.monotonic() - begin


@pytest.fixture
def owner() -> Iterator[Owner]:
    owner = Owner()
    before = descendants(os.getpid())
    try:
        yield owner
    finally:
        for process in reversed(owner.processes):
            process.end(grace_s=3)
        left = descendants(os.getpid()) - before
        assert wait_until(lambda: not alive(left), 10)


def free_address() -> str:
    with contextlib.closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


def test_a_node_is_heard_of_and_missed(owner: Owner, tmp_path: Path) -> None:
    address = free_address()
    with ray_start.ray_folder() as folder, ray_start.ray_folder() as node_folder:
        labels = ray_labels.to_labels("a", ADDRESS, {"room": "cellar"})
        node = owner.add(
            ray_start.node(node_folder, RAY_TOKEN, head_address=address, host="127.0.0.1", mib=1000, labels=labels)
        )
        owner.until(lambda: node.deadline is not None)  # nobody listens yet: no start that would never end
        assert node.num_starts == 0
        owner.add(ray_start.head(folder, RAY_TOKEN, address=address, state=tmp_path / "state"))
        owner.until(lambda: node.answer is not None)

        heard: list[float] = []
        with contextlib.closing(RayMembers(address, RAY_TOKEN)) as members:
            members.notify(lambda: heard.append(time.monotonic()))
            owner.until(lambda: bool(members.current()))
            assert members.current() == [Member(name="a", address=ADDRESS)]
            members.claim([RoomClaim(name="a", mib=400), RoomClaim(name=None, mib=400)])

            starts = node.num_starts
            node.kill()  # Ray of the node dies with all its processes, and is started again
            owner.until(lambda: node.num_starts > starts and node.answer is not None)
            owner.until(lambda: members.current() == [Member(name="a", address=ADDRESS)])

            node.end(grace_s=3)
            owner.until(lambda: members.current()[0].is_gone)
            assert heard
