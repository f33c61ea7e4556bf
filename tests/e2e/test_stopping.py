"""How a server ends: in order, at once, or killed. No process of the server is left."""

import asyncio
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import httpx2 as httpx
import pytest

from tests.e2e.test_chaos import Outcome, plain, run
from tests.engine.support import write_tiny_model
from tests.support.cli import AICI, aici
from tests.support.processes import alive, command, descendants, wait_until
from tests.support.server import Server, serving

pytestmark = pytest.mark.e2e

LENGTH = 1500


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("tiny"), context=4096, num_heads=2)


async def midstream(server: Server, then: Callable[[httpx.AsyncClient], object]) -> Outcome:
    """Stop the server in the middle of a stream, call `then`, and return the outcome of the stream."""
    async with httpx.AsyncClient(base_url=server.url, timeout=60) as http:
        began = asyncio.Event()
        stream = asyncio.create_task(run(http, plain("Once", LENGTH), began))
        await began.wait()
        server.process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(60):
            while (await http.get("/ready")).status_code == 200:
                await asyncio.sleep(0)
        assert not stream.done()
        assert (await http.get("/health")).status_code == 200
        refused = await http.post("/v1/run", json=plain("x"))
        assert refused.status_code == 503
        assert "stopping" in refused.text
        then(http)
        return await stream


def test_running_requests_end_before_the_server_does(model: Path) -> None:
    with serving("--model", str(model)) as server:
        outcome = asyncio.run(midstream(server, lambda _: None))
        assert (outcome.ends, outcome.done, outcome.errors) == (["length"], 1, [])
        assert server.process.wait(60) == 0


def test_streams_that_do_not_end_in_time_get_the_reason(model: Path) -> None:
    with serving("--model", str(model), "--drain-timeout", "0.3") as server:
        outcome = asyncio.run(midstream(server, lambda _: None))
        assert outcome.ends == ["fail"]
        assert "stopping" in outcome.errors[0]
        assert server.process.wait(60) == 0


def test_a_second_signal_ends_the_server_at_once_and_nothing_is_left(model: Path) -> None:
    with serving("--model", str(model)) as server:
        below = descendants(server.process.pid)

        def end(_: httpx.AsyncClient) -> None:
            server.process.send_signal(signal.SIGTERM)

        with pytest.raises(httpx.HTTPError):
            asyncio.run(midstream(server, end))
        assert server.process.wait(60) == -signal.SIGTERM
        assert wait_until(lambda: not alive(below), 30)


def test_a_server_that_still_loads_can_be_stopped(model: Path) -> None:
    command_line = [*AICI, "serve", "--host", "0.0.0.0", "--port", "0", "--model", str(model)]
    with subprocess.Popen(command_line, stderr=subprocess.PIPE, text=True) as process:
        assert wait_until(lambda: any(command(pid) == "aici-engine" for pid in descendants(process.pid)), 60)
        below = descendants(process.pid)
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=60)
        assert process.returncode == 0
        assert not alive(below)
    assert "--api-key-file requires API keys" in said


def test_a_wrong_file_of_keys_stops_the_start(model: Path, tmp_path: Path) -> None:
    keys = tmp_path / "keys.toml"
    keys.write_text("[keys.a]\nkey = 'k'\nsecret = true")
    refused = aici("serve", "--port", "0", "--model", str(model), "--api-key-file", str(keys))
    assert refused.returncode == 2
    assert "keys.a.secret is not a known field" in refused.stderr
