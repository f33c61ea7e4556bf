"""Replicas whose engines run elsewhere: hosts as processes of their own, reached over encrypted TCP."""

import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import httpx2 as httpx
import pytest

from aici_controllers.catalog import guest_path
from tests.e2e.test_replicas import LONG_PROMPT, PATIENCE_S, replicas, run, run_long, states
from tests.engine.support import write_tiny_model
from tests.support.cli import aici
from tests.support.engine_command import EngineCommand
from tests.support.processes import alive, wait_until
from tests.support.server import Server, serving

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]


@dataclass
class RemoteFleet:
    """`hosts`: in the order of the replicas."""

    hosts: list[EngineCommand]
    server: Server


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RemoteFleet]:
    """Two hosts, the second with a store of its own, as another machine has. A sequence at a time on each."""
    folder = tmp_path_factory.mktemp("hosts")
    model = write_tiny_model(tmp_path_factory.mktemp("tiny"), context=4096, num_heads=2)
    hosts = [EngineCommand(folder, 1, model).start(), EngineCommand(folder, 2, model, folder / "store").start()]
    with serving(*_flags(hosts), "--model", str(model), "--max-num-seqs", "1") as server:
        yield RemoteFleet(hosts, server)
    # The end of the server ends the engines, and the hosts wait for the next server.
    assert wait_until(lambda: [host.engines() for host in hosts] == [[], []], PATIENCE_S)
    assert [host.end(signal.SIGTERM) for host in hosts] == [0, 0]


def _flags(hosts: list[EngineCommand]) -> list[str]:
    return ["--engines", ",".join(host.address for host in hosts), "--token-file", str(hosts[0].folder / "token")]


@pytest.fixture
def http(fleet: RemoteFleet) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=fleet.server.url, timeout=PATIENCE_S) as http:
        assert wait_until(lambda: states(http) == ["up", "up"], PATIENCE_S), fleet.server.said[-20:]
        yield http


def test_a_host_without_the_controller_gets_it_before_the_request(http: httpx.Client) -> None:
    section = bytes([0, 3, 2]) + b"rm"
    wasm = {"content-type": "application/wasm"}
    sent = http.post("/v1/controllers", content=guest_path("regex").read_bytes() + section, headers=wasm)
    assert sent.status_code == 200, sent.text
    before = [each["requests"] for each in replicas(http)]
    controlled = {"controller": sent.json()["module_id"], "controller_arg": "[a-z ]{12}", "ignore_eos": False}
    for prompt in ("ab", "cd", "ef", "gh"):
        text, errors = run(http, prompt=prompt, **controlled)
        assert (len(text), errors) == (12, [])
    assert all(each["requests"] >= old + 2 for each, old in zip(replicas(http), before, strict=True))


def test_a_lost_host_loses_only_what_it_had_begun_and_may_come_back(fleet: RemoteFleet, http: httpx.Client) -> None:
    later = [{"controller_arg": f"{LONG_PROMPT}{number}"} for number in range(2)]
    expected = [run(http, **body) for body in later]
    assert all(text and not errors for text, errors in expected)
    with ThreadPoolExecutor() as pool:
        begun = threading.Event()
        running = pool.submit(run_long, fleet.server, begun)
        assert begun.wait(PATIENCE_S)
        [number] = [each["replica"] for each in replicas(http) if each["open"]]
        other = replicas(http)[2 - number]["requests"]
        host = fleet.hosts[number - 1]
        [engine] = host.engines()
        # The host itself would end a stopped engine after seconds: either way the engine is lost.
        os.kill(engine, signal.SIGSTOP)
        waiting = [pool.submit(run, http, **body) for body in later]
        taken = [number - 1, 2 - number]
        assert wait_until(
            lambda: replicas(http)[taken[0]]["waiting"] == 2 or replicas(http)[taken[1]]["requests"] == other + 2,
            PATIENCE_S,
        )
        host.end(signal.SIGKILL)
        assert running.result(PATIENCE_S), "it had begun"
        assert [each.result(PATIENCE_S) for each in waiting] == expected
    assert replicas(http)[2 - number]["requests"] == other + 2, "the other replica has computed both"
    assert http.get("/ready").status_code == 200
    assert wait_until(lambda: not alive({engine}), PATIENCE_S), "an engine ends with its host"
    host.start()
    assert wait_until(lambda: states(http) == ["up", "up"], PATIENCE_S), host.said()
    assert host.engines() != [engine]


def test_a_drained_replica_has_no_engine_until_it_rejoins(fleet: RemoteFleet, http: httpx.Client) -> None:
    assert http.post("/admin/replicas/2/drain").json()["node"] == fleet.hosts[1].address.split("#")[0][6:]
    assert wait_until(lambda: states(http)[1] == "drained", PATIENCE_S)
    assert wait_until(lambda: fleet.hosts[1].engines() == [], PATIENCE_S)
    assert run(http, controller_arg="one engine is left")[1] == []
    assert http.post("/admin/replicas/2/rejoin").json()["state"] == "starting"
    assert wait_until(lambda: states(http) == ["up", "up"], PATIENCE_S)


def test_the_next_server_finds_the_engine_of_a_server_that_died(tmp_path: Path) -> None:
    model = write_tiny_model(tmp_path / "tiny")
    host = EngineCommand(tmp_path, 1, model).start()
    flags = [*_flags([host]), "--model", str(model)]
    with serving(*flags) as server:
        [engine] = host.engines()
        server.process.kill()
        server.process.wait()
    with serving(*flags) as server, httpx.Client(base_url=server.url, timeout=PATIENCE_S) as http:
        assert host.engines() == [engine]
        text, errors = run(http, controller_arg="a prompt")
        assert text
        assert not errors
    assert host.end(signal.SIGTERM) == 0


def test_a_host_without_the_model_says_so(tmp_path: Path) -> None:
    ours, theirs = write_tiny_model(tmp_path / "ours"), write_tiny_model(tmp_path / "theirs", num_heads=2)
    host = EngineCommand(tmp_path, 1, theirs).start()
    ended = aici("serve", "--port", "0", "--model", str(ours), *_flags([host]))
    assert ended.returncode == 2, ended.stderr
    assert "the server's model is not on this machine" in ended.stderr
    assert "whose models are: theirs" in ended.stderr
    assert host.end(signal.SIGTERM) == 0
