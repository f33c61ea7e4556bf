"""A stage's port against strangers, and against peers that have the token and are hostile or out of date."""

import itertools
import os
import random
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zmq

from aici_engine.cluster import frames
from aici_engine.cluster.address import StageAddress
from aici_engine.cluster.frames import Detach, StepStates, pieces
from aici_engine.cluster.token import ClusterToken
from tests.cluster.link_ends import Ends
from tests.cluster.test_link_failures import cpu_seconds, peer

_GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x01"
"""ZMTP 3.1, before the name of the mechanism (20 bytes), whether a server speaks (1), and zeros (31)."""


@pytest.fixture(params=["stage", "insecure-stage"])
def stage(request: pytest.FixtureRequest, tmp_path: Path, ends: Ends) -> Iterator[Any]:
    path = tmp_path / "token"
    ends.token = ClusterToken.read_or_create(path)[0]
    with peer(request.param, path, "tcp://127.0.0.1:0") as process:
        process.address = StageAddress.parse(process.stdout.readline().strip())
        process.insecure = request.param == "insecure-stage"
        yield process


def greeting(stage: Any) -> bytes:
    return (_GREETING + (b"NULL" if stage.insecure else b"CURVE").ljust(20, b"\0")).ljust(64, b"\0")


def connect(stage: Any) -> socket.socket:
    return socket.create_connection(("127.0.0.1", stage.address.port), 5)


def ended(connection: socket.socket) -> bool:
    """Return whether the stage ends the connection within the timeout."""
    try:
        while connection.recv(1 << 16):
            pass
    except ConnectionError:
        pass
    except TimeoutError:
        return False
    return True


def rss_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def works(ends: Ends, stage: Any) -> bool:
    link = ends.link(stage.address, group=ends.group(insecure=stage.insecure))
    link.wait_ready(5)
    link.send(Detach(1), b"x")
    assert link.receive(5) == (StepStates(1, 1, []), bytearray(b"x"))
    assert stage.stdout.readline() == "joined\n"  # nobody before was let in
    return True


def test_garbage(ends: Ends, stage: Any) -> None:
    rnd = random.Random(1)
    starts = [
        b"",
        b"\xff",
        b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        _GREETING,
        greeting(stage),
        greeting(stage) + b"\x04\x26\x05READY",
    ]
    for start, size in itertools.product(starts, (0, 1, 64, 5000, 100_000)):
        with closing(connect(stage)) as connection, suppress(ConnectionError):
            connection.sendall(start + rnd.randbytes(size))
    assert works(ends, stage)


def test_hundreds_of_handshakes_that_stand_still(ends: Ends, stage: Any) -> None:
    """They are ended, and cost nothing while they stand."""
    before = rss_bytes(stage.pid)
    with ExitStack() as stack:
        strangers = [stack.enter_context(closing(connect(stage))) for _ in range(300)]
        for i, stranger in enumerate(strangers):
            stranger.sendall(greeting(stage)[: i % 65])
        assert works(ends, stage)
        began, cpu = time.monotonic(), cpu_seconds(stage.pid)
        assert all(ended(stranger) for stranger in strangers)
        assert time.monotonic() - began < 10
        assert cpu_seconds(stage.pid) - cpu < 0.5
    cpu = cpu_seconds(stage.pid)
    time.sleep(1)
    assert cpu_seconds(stage.pid) - cpu <= 0.02
    assert rss_bytes(stage.pid) - before < 30 << 20


def test_a_frame_of_a_gigabyte_before_the_handshake(stage: Any) -> None:
    before = rss_bytes(stage.pid)
    for flags in (b"\x02", b"\x06"):  # a message, a command
        with closing(connect(stage)) as connection:
            with suppress(ConnectionError):
                connection.sendall(greeting(stage) + flags + struct.pack(">Q", 1 << 30))
                connection.sendall(bytes(8 << 20))
            assert ended(connection)
    assert rss_bytes(stage.pid) - before < 16 << 20


class Impostor:
    """A DEALER socket without our code around it, with any keys."""

    def __init__(self, stage: Any, keys: tuple[bytes, bytes] | None = None, server: bytes | None = None) -> None:
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.socket = self.context.socket(zmq.DEALER)
        self.socket.linger = 0
        if keys is not None:
            self.socket.curve_publickey, self.socket.curve_secretkey = keys
            self.socket.curve_serverkey = server or stage.address.curve_key
        self.socket.connect(stage.address.endpoint)

    def say(self, message: msgspec.Struct | bytes) -> None:
        """Send a message as a frame, or a piece as it is."""
        for piece in [message] if isinstance(message, bytes) else pieces(frames.encode(message)):
            self.socket.send(piece)

    def answer(self, timeout_s: float = 5) -> Any:
        if not self.socket.poll(timeout_s * 1000):
            return None
        return frames.decoder(frames.Refused | frames.Hello)(self.socket.recv()[12:])

    def close(self) -> None:
        self.socket.close()
        self.context.term()


def member_of(ends: Ends, stage: Any) -> Impostor:
    """Return a peer that has the token."""
    return Impostor(stage, None if stage.insecure else ends.token.client_keys())


@pytest.fixture
def member(ends: Ends, stage: Any) -> Iterator[Impostor]:
    with closing(member_of(ends, stage)) as member:
        yield member


@pytest.mark.parametrize("stage", ["stage"], indirect=True)
@pytest.mark.parametrize("wrong", ["plain", "stranger", "own key as the server's"])
def test_strangers_are_not_heard(ends: Ends, stage: Any, wrong: str) -> None:
    keys = {"plain": None, "stranger": zmq.curve_keypair(), "own key as the server's": ends.token.client_keys()}[wrong]
    server = ends.token.client_keys()[0] if wrong.startswith("own") else None
    with closing(Impostor(stage, keys, server)) as stranger:
        stranger.say(ends.group().hello())
        assert stranger.answer(0.5) is None
    assert works(ends, stage)


def test_an_old_version_is_refused_by_name(ends: Ends, stage: Any, member: Impostor) -> None:
    member.say(msgspec.structs.replace(ends.group().hello(), version=0))
    answer = member.answer()
    assert isinstance(answer, frames.Refused)
    assert f"speaks version 0 of the messages, and this stage version {frames.VERSION}" in answer.failure.message
    assert works(ends, stage)


def test_a_hello_without_the_token_is_refused(ends: Ends, stage: Any, member: Impostor) -> None:
    group = ends.group(token=ClusterToken.new())
    member.say(group.hello())
    answer = member.answer()
    assert isinstance(answer, frames.Refused)
    assert f"of cluster {group.token.cluster}" in answer.failure.message
    assert works(ends, stage)


def test_connections_that_do_not_begin_with_a_hello(ends: Ends, stage: Any) -> None:
    for first in (b"", b"x", bytes(100_000), frames.encode(Detach(1)), *pieces(frames.encode(Detach(1)))):
        with closing(member_of(ends, stage)) as member:
            member.say(first)
            assert isinstance(member.answer(), frames.Refused)
    assert works(ends, stage)


def test_members_that_send_junk_are_refused(ends: Ends, stage: Any) -> None:
    before = rss_bytes(stage.pid)
    for piece in (b"junk", struct.pack("<IQ", 10, 1 << 30), bytes(20), struct.pack("<IQ", 3, 0) + b"\xff" * 3):
        with closing(member_of(ends, stage)) as member:
            member.say(ends.group().hello())
            assert isinstance(member.answer(), frames.Hello)
            member.say(piece)
            assert isinstance(member.answer(), frames.Refused)
            assert [stage.stdout.readline() for _ in range(2)] == ["joined\n", "lost\n"]
    assert rss_bytes(stage.pid) - before < 16 << 20
    assert works(ends, stage)


def test_a_member_that_sends_a_hundred_megabytes_in_one_message(ends: Ends, stage: Any, member: Impostor) -> None:
    """The connection ends before the stage has taken the message."""
    member.say(ends.group().hello())
    assert isinstance(member.answer(), frames.Hello)
    assert stage.stdout.readline() == "joined\n"
    before = rss_bytes(stage.pid)
    member.say(bytes(100 << 20))
    assert stage.stdout.readline() == "lost\n"
    assert rss_bytes(stage.pid) - before < 16 << 20


class Recorder:
    """Stands between a driver and a stage, and keeps what the driver says."""

    def __init__(self, stage: Any) -> None:
        self.said = b""
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.stage = connect(stage)
        threading.Thread(target=self._forward, daemon=True).start()

    def _forward(self) -> None:
        driver, _ = self.listener.accept()
        threading.Thread(target=self._copy, args=[self.stage, driver], daemon=True).start()
        self._copy(driver, self.stage, record=True)

    def _copy(self, source: socket.socket, target: socket.socket, *, record: bool = False) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                self.said += data if record else b""
                target.sendall(data)
        with suppress(OSError):
            target.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self.listener.close()
        self.stage.close()


@pytest.mark.parametrize("stage", ["stage"], indirect=True)
def test_bytes_that_were_recorded_are_of_no_use(ends: Ends, stage: Any) -> None:
    """CURVE: each connection has keys of its own. (What a stage does with a frame that comes twice: test_stage.py.)"""
    with closing(Recorder(stage)) as recorder:
        link = ends.link(stage.address._replace(port=recorder.port))
        link.wait_ready()
        link.send(Detach(1), b"secret")
        assert link.receive(5) is not None
        link.close()
        assert [stage.stdout.readline() for _ in range(2)] == ["joined\n", "lost\n"]
    assert len(recorder.said) > 500
    assert b"secret" not in recorder.said
    with closing(connect(stage)) as connection:
        with suppress(ConnectionError):
            connection.sendall(recorder.said)
        assert ended(connection)
    assert works(ends, stage)
