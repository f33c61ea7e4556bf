"""Links whose other end fails, or a relay between the ends. Needs no root; see also test_links_between_machines.py."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from aici_engine.cluster.address import StageAddress
from aici_engine.cluster.frames import Detach, StepStates
from aici_engine.cluster.link import LinkLostError, StageLink
from aici_engine.cluster.token import ClusterToken
from tests.cluster.link_ends import Ends
from tests.support.relay import Relay

_PEER = str(Path(__file__).with_name("link_peer.py"))
_BODY = 2 << 20


@contextmanager
def peer(role: str, token_file: Path, address: str, start: Callable[..., Any] = subprocess.Popen) -> Iterator[Any]:
    text: dict[str, Any] = {"text": True, "bufsize": 1} if start is subprocess.Popen else {}
    argv = [sys.executable, _PEER, role, str(token_file), address]
    process = start(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, **text)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()


@pytest.fixture
def token_file(tmp_path: Path, ends: Ends) -> Path:
    path = tmp_path / "token"
    ends.token = ClusterToken.read_or_create(path)[0]
    return path


@pytest.fixture
def stage(token_file: Path) -> Iterator[Any]:
    """A stage in a process; `address` is where it listens."""
    with peer("stage", token_file, "tcp://127.0.0.1:0") as process:
        process.address = StageAddress.parse(process.stdout.readline().strip())
        yield process


def seconds_until_lost(link: StageLink[Any], timeout_s: float = 10) -> float:
    began = time.monotonic()
    with pytest.raises(LinkLostError, match="is lost"):  # noqa: PT012 frames that arrived before come first
        while link.receive(timeout_s) is not None:
            pass
    return time.monotonic() - began


@pytest.mark.parametrize("is_busy", [False, True])
def test_a_killed_stage_is_noticed_at_once(ends: Ends, stage: Any, is_busy: bool) -> None:
    link = ends.link(stage.address)
    link.wait_ready()
    if is_busy:
        link.send(Detach(1), bytes(_BODY))
    stage.kill()
    assert seconds_until_lost(link) < 0.7


def test_a_killed_driver_is_noticed_at_once(stage: Any, token_file: Path) -> None:
    with peer("driver", token_file, str(stage.address)) as driver:
        assert driver.stdout.readline() == "ready\n"
        assert stage.stdout.readline() == "joined\n"
        driver.kill()
        began = time.monotonic()
        assert stage.stdout.readline() == "lost\n"
        assert time.monotonic() - began < 0.7


def test_a_stage_that_stands_still_is_lost(ends: Ends, stage: Any) -> None:
    link = ends.link(stage.address)
    link.wait_ready()
    stage.send_signal(signal.SIGSTOP)
    assert 0.5 < seconds_until_lost(link) < 5


def test_a_driver_that_stands_still_is_lost(stage: Any, token_file: Path) -> None:
    with peer("driver", token_file, str(stage.address)) as driver:
        assert driver.stdout.readline() == "ready\n"
        assert stage.stdout.readline() == "joined\n"
        driver.send_signal(signal.SIGSTOP)
        began = time.monotonic()
        assert stage.stdout.readline() == "lost\n"
        assert time.monotonic() - began < 15


def test_half_open(ends: Ends, stage: Any) -> None:
    """Nothing arrives any more, in either direction, and no connection is closed."""
    with Relay("127.0.0.1", stage.address.port) as relay:
        link = ends.link(stage.address._replace(port=relay.port))
        link.wait_ready()
        assert stage.stdout.readline() == "joined\n"
        link.send(Detach(1), bytes(100))
        assert link.receive(5) is not None
        relay.stall()
        assert 0.5 < seconds_until_lost(link) < 5
        began = time.monotonic()
        assert stage.stdout.readline() == "lost\n"
        assert time.monotonic() - began < 15


def test_a_new_link_after_a_loss(ends: Ends, stage: Any) -> None:
    with Relay("127.0.0.1", stage.address.port) as relay:
        address = stage.address._replace(port=relay.port)
        link = ends.link(address)
        link.wait_ready()
        relay.cut()
        assert seconds_until_lost(link) < 5
        time.sleep(0.5)
        assert relay.counts()["accepted"] == 1  # nothing connects by itself
        link.close()
        link = ends.link(address)
        link.wait_ready()
        link.send(Detach(1), b"x")
        assert link.receive(5) == (StepStates(1, 1, []), bytearray(b"x"))


def test_a_handshake_that_stands_still(ends: Ends, stage: Any) -> None:
    with Relay("127.0.0.1", stage.address.port) as relay:
        relay.stall()
        link = ends.link(stage.address._replace(port=relay.port), connect_s=0.5)
        with pytest.raises(LinkLostError, match="took the connection, and did not answer"):
            link.wait_ready(5)


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_idle_links_cost_nothing(stage: Any, token_file: Path) -> None:
    with peer("driver", token_file, str(stage.address)) as driver:
        assert driver.stdout.readline() == "ready\n"
        before = cpu_seconds(stage.pid), cpu_seconds(driver.pid)
        time.sleep(4)
        after = cpu_seconds(stage.pid), cpu_seconds(driver.pid)
    assert max(after[0] - before[0], after[1] - before[1]) <= 0.02  # two ticks of the clock: 0.5 % at most


def test_closing_while_another_thread_wakes(ends: Ends) -> None:
    for _ in range(20):
        server, _, link = ends.joined()
        group = link._group
        waker = threading.Thread(target=lambda group=group: [group.wake() for _ in range(100)])
        waker.start()
        while group.wait(0.05):
            pass
        waker.join()
        group.close()
        server._group.close()
