"""The relay of tests/support/relay.py, against plain sockets."""

import socket
import threading
import time
from collections.abc import Iterator
from multiprocessing.connection import wait

import pytest

from tests.support.processes import wait_until
from tests.support.relay import Relay


class _Server:
    """Echoes each connection; notes the first bytes of each in the order of arrival."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.first: list[bytes] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        try:
            while True:
                connection, _ = self.listener.accept()
                if wait([connection], 0.5):  # here, not in threads: they have no order
                    self.first.append(connection.recv(8, socket.MSG_PEEK))
                threading.Thread(target=self._echo, args=[connection], daemon=True).start()
        except OSError:
            return

    def _echo(self, connection: socket.socket) -> None:
        with connection:
            try:
                while data := connection.recv(1 << 16):
                    connection.sendall(data)
            except OSError:
                return


@pytest.fixture
def server() -> Iterator[_Server]:
    server = _Server()
    yield server
    server.listener.close()


@pytest.fixture
def relay(server: _Server) -> Iterator[Relay]:
    with Relay("127.0.0.1", server.port) as relay:
        yield relay


def _connect(relay: Relay) -> socket.socket:
    return socket.create_connection((relay.host, relay.port), 20)


def _round_trip(connection: socket.socket, data: bytes) -> float:
    began = time.monotonic()
    connection.sendall(data)
    got = b""
    while len(got) < len(data):
        piece = connection.recv(1 << 16)
        assert piece, "closed"
        got += piece
    assert got == data
    return time.monotonic() - began


def _has_ended(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


def test_bytes_pass_both_ways(relay: Relay) -> None:
    with _connect(relay) as connection:
        _round_trip(connection, b"x" * 300_000)
        assert relay.counts() == {"connections": 1, "accepted": 1, "to_target": 300_000, "to_client": 300_000}
    assert wait_until(lambda: relay.counts()["connections"] == 0, 10)


def test_delay_is_added_each_way_and_does_not_limit_the_rate(relay: Relay) -> None:
    with _connect(relay) as connection:
        _round_trip(connection, b"x")
        relay.set(delay_s=0.05)
        assert _round_trip(connection, b"x") > 0.1
        # 60 pieces are on their way together: far less than 60 delays.
        assert 0.1 < _round_trip(connection, b"x" * 1_000_000) < 2


def test_the_rate_is_limited(relay: Relay) -> None:
    relay.set(bytes_per_s=1_000_000)
    with _connect(relay) as connection:
        assert _round_trip(connection, b"x" * 200_000) > 0.19


def test_a_stall_is_silent_and_then_late(relay: Relay) -> None:
    with _connect(relay) as connection:
        _round_trip(connection, b"x")
        relay.stall()
        connection.sendall(b"late")
        connection.settimeout(0.2)
        with pytest.raises(TimeoutError):
            connection.recv(1)
        with _connect(relay):  # new connections are accepted, and hear nothing
            relay.resume()
            connection.settimeout(20)
            assert connection.recv(4) == b"late"


def test_after_a_stall_connections_may_be_lost(relay: Relay) -> None:
    with _connect(relay) as connection:
        _round_trip(connection, b"x")
        relay.stall()
        connection.sendall(b"lost")
        relay.resume(lost=True)
        assert _has_ended(connection)
    with _connect(relay) as connection:
        _round_trip(connection, b"new")


def test_a_cut_ends_connections_and_new_ones_work(relay: Relay) -> None:
    with _connect(relay) as first:
        _round_trip(first, b"x")
        relay.cut()
        assert _has_ended(first)
    with _connect(relay) as second:
        _round_trip(second, b"y")


def test_held_connections_go_through_the_newest_first(relay: Relay, server: _Server) -> None:
    relay.hold()
    with _connect(relay) as first, _connect(relay) as second:
        first.sendall(b"first")
        second.sendall(b"second")
        assert wait_until(lambda: relay.counts()["accepted"] == 2, 10)
        assert server.first == []
        relay.resume()
        assert first.recv(8) == b"first"
        assert second.recv(8) == b"second"
    assert server.first == [b"second", b"first"]


def test_the_target_closes_and_the_client_reads_the_end(relay: Relay) -> None:
    with _connect(relay) as connection:
        connection.shutdown(socket.SHUT_WR)
        assert connection.recv(1) == b""
