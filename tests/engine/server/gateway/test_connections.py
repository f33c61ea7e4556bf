"""A server takes as many connections as it can serve, and says so to the others."""

import asyncio
import contextlib
import logging
import resource
import socket

import pytest

from aici_base.errors import UsageError
from aici_engine.server.api.app import create_app
from aici_engine.server.gateway.connections import Connections, Listener, most_connections
from aici_engine.server.telemetry.logs import FewLines
from tests.support.fake_engine import FakeEngine
from tests.support.fake_service import service_over
from tests.support.http import exchange, listening
from tests.support.lmtp import run

_HEALTH = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
_LMTP = (
    b"GET /lmtp HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)
_MESSAGES = b"POST /v1/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n"


async def _until(connections: Connections, number: int) -> None:
    async with asyncio.timeout(30):
        while connections.num_open != number:
            await asyncio.sleep(0.001)


@run
async def test_connections_beyond_the_bound_get_an_answer_or_are_closed(caplog: pytest.LogCaptureFixture) -> None:
    connections = Connections(2)
    async with listening(create_app(service_over(FakeEngine())), connections=connections) as port:
        idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
        await _until(connections, 2)
        for request in (_HEALTH, _LMTP):
            said = await exchange(port, request)
            assert said.startswith(b"HTTP/1.1 503")
            assert b"\r\nretry-after: 2\r\n" in said.lower()
            assert b"\r\nconnection: close\r\n" in said.lower()
            assert b"as many connections as it takes" in said
        assert b'"type":"overloaded_error"' in await exchange(port, _MESSAGES)
        await _until(connections, 2)
        more = [await asyncio.open_connection("127.0.0.1", port) for _ in range(60)]
        closed = 0
        for reader, _ in more:
            with contextlib.suppress(TimeoutError, ConnectionError):
                async with asyncio.timeout(0.02):
                    closed += await reader.read(1) == b""
        assert connections.num_open <= 34
        assert closed
        for _, writer in [*idle, *more]:
            writer.close()
        await _until(connections, 0)
        assert (await exchange(port, _HEALTH)).startswith(b"HTTP/1.1 200")
    assert caplog.text.count("connections are open, the most allowed") == 1


def test_the_bound_leaves_descriptors_for_the_rest() -> None:
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    found = most_connections(None, num_models=1)
    assert 8 <= found < files
    assert most_connections(None, num_models=100) <= found
    assert most_connections(8, num_models=1) == 8
    with pytest.raises(UsageError, match="open files leaves"):
        most_connections(files, num_models=1)


def test_a_connection_is_counted_once() -> None:
    connections = Connections()
    with Listener(socket.AF_INET, socket.SOCK_STREAM) as listener:
        listener.connections = connections
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        with socket.create_connection(listener.getsockname()):
            accepted, _ = listener.accept()
            assert connections.num_open == 1
            accepted.close()
            accepted.close()
    assert connections.num_open == 0


def test_many_lines_of_one_cause_become_one() -> None:
    class Kept(logging.Handler):
        def __init__(self) -> None:
            super().__init__()
            self.lines: list[str] = []

        def emit(self, record: logging.LogRecord) -> None:
            self.lines.append(record.getMessage())

    kept = Kept()
    few = FewLines(kept, most=3, period_s=3600)
    kept.addFilter(few)
    log = logging.Logger("test")
    log.addHandler(kept)
    for number in range(100):
        log.warning("full: %d", number)
        log.info("asked: %d", number)
    log.error("another cause")
    assert [line for line in kept.lines if line.startswith("full")] == ["full: 0", "full: 1", "full: 2"]
    assert sum(line.startswith("asked") for line in kept.lines) == 100
    assert "another cause" in kept.lines
    few.tell_all()
    assert kept.lines[-1] == "97 more lines like this one were left out: full: 2"
    log.warning("full: again")
    assert kept.lines[-1] == "full: again"
