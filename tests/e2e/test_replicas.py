"""Two real engines of a model behind one address: controllers, deaths and drains."""

import json
import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest

from aici_controllers.catalog import guest_path
from tests.engine.support import write_tiny_model
from tests.support.processes import command, descendants, wait_until
from tests.support.server import Server, serving

pytestmark = pytest.mark.e2e

PATIENCE_S = 120
LONG_PROMPT = "Once upon a time there was a cat. " * 20
"""Longer than a queue is dear: requests that begin alike stay together."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One sequence runs at a time on each replica, so that a second request waits."""
    model = write_tiny_model(tmp_path_factory.mktemp("tiny"), context=4096, num_heads=2)
    with serving("--model", str(model), "--replicas", "2", "--max-num-seqs", "1") as server:
        yield server


@pytest.fixture
def http(server: Server) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=PATIENCE_S) as http:
        assert wait_until(lambda: states(http) == ["up", "up"], PATIENCE_S)
        yield http


def replicas(http: httpx.Client) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = http.get("/replicas").json()["replicas"]
    return found


def states(http: httpx.Client) -> list[str]:
    return [each["state"] for each in replicas(http)]


def engine(server: Server, number: int) -> int:
    """Return the process of a replica: its processors tell it from the others."""
    cpus = {tuple(each["cpus"]): each["replica"] for each in httpx.get(f"{server.url}/replicas").json()["replicas"]}
    pids = sorted(pid for pid in descendants(server.process.pid) if command(pid) == "aici-engine")
    if len(cpus) == len(pids):
        return next(pid for pid in pids if cpus[tuple(sorted(os.sched_getaffinity(pid)))] == number)
    return pids[number - 1]


def run(http: httpx.Client, **body: Any) -> tuple[str, list[str]]:
    """Return the text and the errors of a run."""
    wanted = {"controller": "none", "max_tokens": 12, "ignore_eos": True, "temperature": 1.0, "seed": 5} | body
    answer = http.post("/v1/run", json=wanted)
    if answer.status_code != 200:
        return "", [answer.text]
    text, errors = "", []
    for line in answer.content.split(b"\n"):
        if line.startswith(b"data: {"):
            for fork in json.loads(line[6:]).get("forks", ()):
                text += fork["text"]
                errors += [fork["error"]] if fork["error"] else []
    return text, errors


def test_every_replica_sees_a_controller_and_its_tag_at_once(http: httpx.Client) -> None:
    section = bytes([0, 3, 2]) + b"re"
    wasm = {"content-type": "application/wasm"}
    sent = http.post("/v1/controllers", content=guest_path("regex").read_bytes() + section, headers=wasm)
    assert sent.status_code == 200, sent.text
    tag = {"module_id": sent.json()["module_id"], "tags": ["e2e-on-replicas"]}
    assert http.post("/v1/controllers/tags", json=tag).status_code == 200
    before = [each["requests"] for each in replicas(http)]
    controlled = {"controller": "e2e-on-replicas", "controller_arg": "[a-z ]{12}", "ignore_eos": False}
    for prompt in ("ab", "cd", "ef", "gh"):
        text, errors = run(http, prompt=prompt, **controlled)
        assert (len(text), errors) == (12, [])
    assert all(each["requests"] >= old + 2 for each, old in zip(replicas(http), before, strict=True))


def test_a_killed_replica_loses_only_what_it_had_begun(server: Server, http: httpx.Client) -> None:
    later = [{"controller_arg": f"{LONG_PROMPT}{number}"} for number in range(2)]
    expected = [run(http, **body) for body in later]
    assert all(text and not errors for text, errors in expected)
    with ThreadPoolExecutor() as pool:
        begun = threading.Event()
        running = pool.submit(run_long, server, begun)
        assert begun.wait(PATIENCE_S)
        [number] = [each["replica"] for each in replicas(http) if each["open"]]
        victim = engine(server, number)
        os.kill(victim, signal.SIGSTOP)
        waiting = [pool.submit(run, http, **body) for body in later]
        assert wait_until(lambda: replicas(http)[number - 1]["waiting"] == 2, PATIENCE_S)
        other = replicas(http)[2 - number]["requests"]
        os.kill(victim, signal.SIGKILL)
        assert running.result(PATIENCE_S), "it had begun"
        assert [each.result(PATIENCE_S) for each in waiting] == expected
    assert replicas(http)[2 - number]["requests"] == other + 2, "the other replica has computed both"
    assert http.get("/ready").status_code == 200
    assert wait_until(lambda: states(http) == ["up", "up"], PATIENCE_S)
    assert replicas(http)[number - 1]["restarts"] == 1
    assert engine(server, number) != victim


def run_long(server: Server, begun: threading.Event) -> list[str]:
    """Run for long, and return the errors."""
    errors: list[str] = []
    body = {"controller": "none", "controller_arg": LONG_PROMPT, "max_tokens": 3000, "ignore_eos": True}
    with httpx.Client(timeout=PATIENCE_S) as http, http.stream("POST", f"{server.url}/v1/run", json=body) as answer:
        rest = b""
        for part in answer.iter_bytes():
            *lines, rest = (rest + part).split(b"\n")
            for line in lines:
                if line.startswith(b"data: {"):
                    for fork in json.loads(line[6:]).get("forks", ()):
                        errors += [fork["error"]] if fork["error"] else []
                        if fork["text"]:
                            begun.set()
    return errors


def _failures(server: Server, number: int, stop: threading.Event, **body: Any) -> list[str]:
    """Send requests until `stop`, and return their failures."""
    failures: list[str] = []
    with httpx.Client(base_url=server.url, timeout=PATIENCE_S) as own:
        while not stop.is_set():
            text, errors = run(own, controller_arg=f"{number} is a number", **body)
            failures += errors or ([] if text else ["no text"])
    return failures


def test_all_engines_are_replaced_in_turn_without_a_failed_request(server: Server, http: httpx.Client) -> None:
    before = {engine(server, number) for number in (1, 2)}
    stop = threading.Event()
    with ThreadPoolExecutor() as pool:
        clients = [pool.submit(_failures, server, number, stop, max_tokens=40) for number in range(4)]
        try:
            for number in (1, 2):
                assert http.post(f"/admin/replicas/{number}/drain").json()["state"] == "draining"
                assert wait_until(lambda number=number: states(http)[number - 1] == "drained", PATIENCE_S)  # type: ignore[misc]
                assert http.post(f"/admin/replicas/{3 - number}/drain").status_code == 409
                assert http.post(f"/admin/replicas/{number}/rejoin").status_code == 200
                assert wait_until(lambda: states(http) == ["up", "up"], PATIENCE_S)
        finally:
            stop.set()
        assert [each.result(PATIENCE_S) for each in clients] == [[]] * 4
    assert before.isdisjoint({engine(server, number) for number in (1, 2)})


def test_a_load_starts_a_second_replica_and_its_end_ends_the_replica(tmp_path: Path) -> None:
    model = write_tiny_model(tmp_path / "tiny", context=4096, num_heads=2)
    flags = ("--replicas", "1:2", "--max-num-seqs", "1", "--scale-down-after", "0.5")
    with (
        serving("--model", str(model), *flags) as server,
        httpx.Client(base_url=server.url, timeout=PATIENCE_S) as http,
        ThreadPoolExecutor() as pool,
    ):
        assert states(http) == ["up", "standby"]
        stop = threading.Event()
        clients = [pool.submit(_failures, server, number, stop, max_tokens=2000) for number in range(6)]
        try:
            assert wait_until(lambda: states(http) == ["up", "up"], PATIENCE_S)
            assert wait_until(lambda: all(each["requests"] for each in replicas(http)), PATIENCE_S)
        finally:
            stop.set()
        assert [each.result(PATIENCE_S) for each in clients] == [[]] * 6
        assert wait_until(lambda: sorted(states(http)) == ["standby", "up"], PATIENCE_S)
        assert run(http, controller_arg="still here")[1] == []
