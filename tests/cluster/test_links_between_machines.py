"""Links between machines: how a lost peer is noticed, and that slow is not lost."""

import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from aici_engine.cluster import frames
from aici_engine.cluster.address import StageAddress
from aici_engine.cluster.frames import Attach, Attached, FromStage
from aici_engine.cluster.link import LinkGroup, LinkLostError, StageLink
from aici_engine.cluster.token import ClusterToken
from tests.support.netns import Machine, Network
from tests.support.relay import Relay

ATTACH = Attach(7, 0, 1, "", 10, 16, 512, 100, True)


class Far:
    """A peer in a machine, behind a relay in the same machine, and a link to it."""

    def __init__(self, network: Network, stack: ExitStack) -> None:
        self.machine: Machine = network.machine("far")
        token = ClusterToken.new()
        self.group = stack.enter_context(LinkGroup(token, role="driver", name="driver"))
        argv = [sys.executable, "-m", "tests.support.link_echo", self.machine.address, token.secret.hex()]
        self.process = self.machine.start(argv)
        assert self.process.stdout is not None
        self._address = StageAddress.parse(self.process.stdout.readline().strip())
        relay = Relay(self._address.host, self._address.port, host=self.machine.address, start=self.machine.start)
        self.relay = stack.enter_context(relay)
        self.link = self.connect()

    def connect(self) -> StageLink[FromStage]:
        address = self._address._replace(port=self.relay.port)
        link = StageLink(self.group, address, frames.decode_from_stage, max_body_bytes=64 << 20)
        link.wait_ready(10)
        return link

    def round_trip(self, body: bytes, timeout_s: float = 20) -> float:
        began = time.monotonic()
        self.link.send(ATTACH, body)
        assert self.link.receive(timeout_s) == (Attached(7, 0), bytearray(body))
        return time.monotonic() - began

    def lost_after(self) -> float:
        """Wait until the link is lost; return the seconds."""
        began = time.monotonic()
        with pytest.raises(LinkLostError):
            assert self.link.receive(10) is not None, "not lost"
        return time.monotonic() - began


@pytest.fixture
def far(network: Network) -> Iterator[Far]:
    with ExitStack() as stack:
        yield Far(network, stack)


HURTS: dict[str, Callable[[Far], None]] = {
    "kill -9": lambda far: far.process.kill(),
    "power": lambda far: far.machine.crash(),
    "half-open": lambda far: far.relay.stall(),
    "stopped": lambda far: far.process.signal(signal.SIGSTOP),
}


@pytest.mark.parametrize("name", HURTS)
def test_a_lost_peer_is_noticed_soon(far: Far, name: str) -> None:
    assert far.round_trip(b"hello") < 5
    HURTS[name](far)
    # Heartbeats of 0.3 s and 0.9 s; a busy machine needs longer.
    assert far.lost_after() < 5


def test_after_a_cut_a_new_link_can_be_made(far: Far) -> None:
    far.machine.unplug()
    far.lost_after()
    far.machine.plug()
    far.link.close()
    far.link = far.connect()
    assert far.round_trip(b"hello") < 5


def test_a_large_frame_on_a_slow_link_is_not_a_silence(far: Far) -> None:
    """2 MB take 1.6 s each way at 10 Mbit/s, 20 ms away: longer than the heartbeats' timeout."""
    far.machine.limit_rate(10_000_000)
    far.relay.set(delay_s=0.02)
    assert 1.6 < far.round_trip(bytes(2_000_000), timeout_s=30) < 30
    assert far.link.lost is None


def test_a_short_silence_is_not_a_loss(far: Far) -> None:
    far.relay.stall()
    time.sleep(0.4)
    far.relay.resume()
    assert far.round_trip(b"hello") < 5
