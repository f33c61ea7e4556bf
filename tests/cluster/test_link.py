"""Links between two ends in this process."""

import os
import signal
import socket
import threading
import time
from functools import partial

import pytest

from aici_base.errors import UnavailableError, UnreachableError, UsageError
from aici_engine.cluster import frames
from aici_engine.cluster.address import StageAddress
from aici_engine.cluster.frames import Attached, Detach, StepStates, ToStage
from aici_engine.cluster.link import LinkLostError
from aici_engine.cluster.link_server import KeyPair, PeerFrame, PeerJoined, PeerLost, StageServer
from aici_engine.cluster.token import ClusterToken
from tests.cluster.link_ends import ANY_PORT, ATTACH, Ends, meet
from tests.support.processes import wait_until


@pytest.mark.parametrize("insecure", [False, True])
@pytest.mark.parametrize("size", [0, 1, frames.PIECE_BYTES - 12, frames.PIECE_BYTES, 3 * frames.PIECE_BYTES + 5])
def test_frames_arrive_whole_and_in_order(ends: Ends, size: int, insecure: bool) -> None:
    server, peer, link = ends.joined(insecure=insecure)
    assert (peer.role, peer.name, link.peer_name) == ("driver", "the driver", "the stage")
    body = os.urandom(size)
    link.send(ATTACH, body)
    link.send(Detach(7))
    assert server.receive(5) == PeerFrame(peer, ATTACH, bytearray(body))
    assert server.receive(5) == PeerFrame(peer, Detach(7), bytearray())
    server.send(peer, Attached(7, 0), body)
    server.send(peer, StepStates(7, 1, [(0, 1, 2)]))
    assert link.receive(5) == (Attached(7, 0), bytearray(body))
    assert link.receive(5) == (StepStates(7, 1, [(0, 1, 2)]), bytearray())
    assert link.receive(0) is None
    assert server.receive(0) is None


def test_ipv6(ends: Ends) -> None:
    server = ends.server(StageAddress("::1", 0))
    assert str(server.address).startswith("tcp://[::1]:")
    meet(server, ends.link(StageAddress.parse(str(server.address))))


def test_a_link_that_is_closed_is_lost_for_the_server(ends: Ends) -> None:
    server, peer, link = ends.joined()
    link.send(Detach(1))
    link.close()
    assert server.receive(5) == PeerFrame(peer, Detach(1), bytearray())
    assert server.receive(5) == PeerLost(peer)
    server.send(peer, Attached(1, 0))  # no error


def test_a_message_before_the_end_is_read_although_an_answer_could_not_be_sent(ends: Ends) -> None:
    server, peer, link = ends.joined()
    link.send(Detach(1))
    link.close()
    assert wait_until(lambda: server._monitor.poll(0), 5)  # the server can know that the peer is gone
    server.send(peer, Attached(1, 0))
    assert server.receive(5) == PeerFrame(peer, Detach(1), bytearray())
    assert server.receive(5) == PeerLost(peer)


def test_a_new_connection_with_the_descriptor_of_a_lost_one_stays(ends: Ends) -> None:
    server = ends.server()
    for _ in range(8):
        first = ends.link(server.address)
        peer = meet(server, first)
        first._group.close()  # all its descriptors are free now
        second = ends.link(server.address)
        time.sleep(0.1)  # the end of the first and the greeting of the second wait to be read
        server.send(peer, Attached(1, 0))
        events = list(iter(partial(server.receive, 0.1), None))
        assert [type(event) for event in events] == [PeerLost, PeerJoined]
        second._group.close()
        assert isinstance(server.receive(5), PeerLost)


def test_a_server_that_is_closed_is_lost_for_the_link(ends: Ends) -> None:
    lost: list[LinkLostError] = []
    server = ends.server()
    link = ends.link(server.address, on_lost=lost.append)
    peer = meet(server, link)
    server.send(peer, Attached(1, 0))
    assert link.receive(5) == (Attached(1, 0), bytearray())
    server.close()
    began = time.monotonic()
    with pytest.raises(LinkLostError, match="is lost"):
        link.receive(5)
    assert time.monotonic() - began < 5
    assert wait_until(lambda: lost == [link.lost], 5)
    with pytest.raises(LinkLostError, match="is lost"):
        link.send(Detach(1))


def test_wait_and_wake(ends: Ends) -> None:
    server, peer, link = ends.joined()
    group = link._group
    assert not group.wait(0.01)
    threading.Timer(0.05, group.wake).start()
    assert group.wait(5)
    assert not group.wait(0)
    server.send(peer, Attached(1, 0))
    assert group.wait(5)
    assert link.receive(0) is not None
    server.close()
    assert group.wait(5)


def test_a_signal_at_another_thread_wakes(ends: Ends) -> None:
    """That thread's system calls are interrupted then, and those of `wait` are not."""
    group, handled = ends.group(), threading.Event()
    before = signal.signal(signal.SIGUSR2, lambda *_: handled.set())
    other = threading.Thread(target=handled.wait, args=(20,))
    other.start()
    try:
        group.wake_on_signals()
        threading.Timer(0.05, lambda: signal.pthread_kill(other.ident or 0, signal.SIGUSR2)).start()
        assert group.wait(10)
        assert handled.is_set()
        assert not group.wait(0)
    finally:
        handled.set()
        other.join()
        signal.signal(signal.SIGUSR2, before)


def why(ends: Ends, address: StageAddress, **options: object) -> str:
    with pytest.raises(LinkLostError) as error:  # the first message may already find the connection gone
        ends.link(address, **options).wait_ready(5)
    return str(error.value)


def test_a_stage_is_not_taken_for_a_node(ends: Ends) -> None:
    server = ends.server()
    link = ends.link(server.address, to="node")
    assert isinstance(server.receive(5), PeerJoined)
    with pytest.raises(LinkLostError, match=r"a stage listens at tcp://.*, and this is the address of a node\n"):
        link.wait_ready(5)


def test_strangers_do_not_fill_the_log(ends: Ends, caplog: pytest.LogCaptureFixture) -> None:
    server = ends.server(insecure=True)
    for _ in range(10):
        link = ends.link(server.address, group=ends.group(token=ClusterToken.new(), insecure=True))
        assert server.receive(0.1) is None
        with pytest.raises(LinkLostError, match="of cluster"):
            link.wait_ready(5)
    assert 1 <= sum("a connection is refused" in record.getMessage() for record in caplog.records) < 10


def test_another_token(ends: Ends) -> None:
    server = ends.server()
    group = ends.group(token=ClusterToken.new())
    assert why(ends, server.address, group=group).endswith("refused this driver: the cluster tokens differ")
    assert server.receive(0.1) is None


def test_another_token_without_encryption(ends: Ends) -> None:
    server = ends.server(insecure=True)
    link = ends.link(server.address, group=ends.group(token=ClusterToken.new(), insecure=True))
    assert server.receive(0.2) is None
    with pytest.raises(LinkLostError, match="of cluster"):
        link.wait_ready(5)


def test_another_key(ends: Ends) -> None:
    server = ends.server()
    assert "has another key" in why(ends, server.address._replace(key=KeyPair.new().public))
    assert server.receive(0.1) is None


def test_nobody_listens(ends: Ends) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    assert why(ends, StageAddress("127.0.0.1", port, KeyPair.new().public)).endswith("Connection refused")


def test_encryption_on_one_side_only(ends: Ends) -> None:
    server = ends.server()
    plain = ends.group(insecure=True)
    with pytest.raises(UsageError) as error:
        ends.link(server.address, group=plain)
    assert "--insecure" in error.value.hint
    assert "does not answer as a stage" in why(ends, server.address._replace(key=None), group=plain)


def test_keys_that_are_given_stay(ends: Ends) -> None:
    keys = KeyPair.new()
    assert ends.server(keys=keys).address.key == keys.public


def test_addresses_in_public_need_encryption(ends: Ends) -> None:
    group = ends.group(insecure=True)
    for host in ("8.8.8.8", "0.0.0.0", "2001:4860:4860::8888"):
        with pytest.raises(UsageError, match="in public"):
            ends.link(StageAddress(host, 1), group=group)


def test_an_address_that_is_taken(ends: Ends) -> None:
    server = ends.server()
    group = ends.group(role="stage")
    with pytest.raises(UnavailableError, match="in use"):
        StageServer(group, server.address, frames.decode_to_stage, max_body_bytes=0)
    for _ in range(2):  # the group can still listen, with several servers
        other: StageServer[ToStage] = StageServer(group, ANY_PORT, frames.decode_to_stage, max_body_bytes=0)
        meet(other, ends.link(other.address))


def test_an_unknown_host(ends: Ends) -> None:
    with pytest.raises(UnreachableError, match="nowhere"):
        ends.link(StageAddress("nowhere.invalid", 1))


def test_a_storm_of_strangers_while_the_stage_computes(ends: Ends) -> None:
    """Nobody reads the events of the connections; heartbeats are answered nevertheless."""
    server, peer, link = ends.joined()
    for _ in range(3000):
        socket.create_connection(("127.0.0.1", server.address.port)).close()
    assert not link._group.wait(1.5)
    server.send(peer, Attached(1, 0))
    assert link.receive(5) == (Attached(1, 0), bytearray())
    assert server.receive(0) is None


def test_without_the_thread_that_decides_nobody_may_connect(ends: Ends) -> None:
    group = ends.group(role="stage")
    group.authenticates = True  # a lie
    server: StageServer[ToStage] = StageServer(group, ANY_PORT, frames.decode_to_stage, max_body_bytes=0)
    link = ends.link(server.address, connect_s=1)
    with pytest.raises(LinkLostError):
        link.wait_ready(1)
    assert server.receive(0) is None
