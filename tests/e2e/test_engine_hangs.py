"""An engine that hangs or dies: it is noticed, replaced, and what had given nothing yet is answered all the same."""

import contextlib
import json
import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest

from aici_controllers.catalog import guest_path
from tests.engine.support import write_tiny_model
from tests.support.faulty_engine import Faults
from tests.support.processes import alive, command, descendants, wait_until
from tests.support.server import Server, serving

pytestmark = pytest.mark.e2e

PATIENCE_S = 120


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("tiny"), context=4096, num_heads=2)


@pytest.fixture(scope="module")
def faults(tmp_path_factory: pytest.TempPathFactory) -> Faults:
    return Faults(tmp_path_factory.mktemp("faults"))


@pytest.fixture(scope="module")
def server(model: Path, faults: Faults) -> Iterator[Server]:
    """One sequence runs at a time, so that a second request waits."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(faults.folder))
        with serving("--model", str(model), "--max-num-seqs", "1", "--threads", "1") as server:
            yield server


@pytest.fixture
def http(server: Server) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=PATIENCE_S) as http:
        assert wait_until(lambda: http.get("/ready").status_code == 200, PATIENCE_S)
        yield http


def engine(server: Server) -> int:
    [pid] = [pid for pid in descendants(server.process.pid) if command(pid) == "aici-engine"]
    return pid


def lines(answer: httpx.Response) -> Iterator[bytes]:
    """Yield lines. httpx also ends lines at U+0085 and U+2028, and texts of a random model have all characters."""
    rest = b""
    for part in answer.iter_bytes():
        *complete, rest = (rest + part).split(b"\n")
        yield from complete


def run(http: httpx.Client, **body: Any) -> tuple[str, list[str]]:
    """Return the text and the errors of a run."""
    wanted = {"controller": "none", "max_tokens": 20, "ignore_eos": True, "temperature": 1.0, "seed": 5} | body
    text, errors = "", []
    with http.stream("POST", "/v1/run", json=wanted) as answer:
        if answer.status_code != 200:
            return "", [answer.read().decode()]
        for line in lines(answer):
            if line.startswith(b"data: {"):
                for fork in json.loads(line[6:]).get("forks", ()):
                    text += fork["text"]
                    errors += [fork["error"]] if fork["error"] else []
    return text, errors


class Running:
    """A long run that has begun."""

    def __init__(self, server: Server) -> None:
        self.errors: list[str] = []
        self._begun = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(server.url,))
        self._thread.start()
        assert self._begun.wait(PATIENCE_S)

    def _run(self, url: str) -> None:
        body = {"controller": "none", "controller_arg": "long", "max_tokens": 4000, "ignore_eos": True}
        with httpx.Client(timeout=PATIENCE_S) as http, http.stream("POST", f"{url}/v1/run", json=body) as answer:
            for line in lines(answer):
                if line.startswith(b"data: {"):
                    for fork in json.loads(line[6:]).get("forks", ()):
                        self.errors += [fork["error"]] if fork["error"] else []
                        if fork["text"]:
                            self._begun.set()

    def wait(self) -> None:
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()


def waits(server: Server, number: int) -> bool:
    return server.stats().get("admitted_sequences", 0) >= number


def test_a_request_that_waited_is_answered_by_the_next_engine(
    server: Server, http: httpx.Client, faults: Faults
) -> None:
    """With the seed and the uploaded controller that it had. The engine hangs before, so that it stays at its work."""
    section = bytes([0, 3, 2]) + b"re"
    sent = http.post(
        "/v1/controllers",
        content=guest_path("regex").read_bytes() + section,
        headers={"content-type": "application/wasm"},
    )
    assert sent.status_code == 200, sent.text
    controlled = {
        "controller": sent.json()["module_id"],
        "controller_arg": "[a-z ]{12}",
        "prompt": "ab",
        "ignore_eos": False,
    }
    expected = [run(http, controller_arg="waits"), run(http, **controlled)]
    assert [errors for _, errors in expected] == [[], []]
    with ThreadPoolExecutor() as pool:
        faults.cause("hangs_later")
        hanging = engine(server)
        running = Running(server)
        waiting: list[Future[tuple[str, list[str]]]] = [
            pool.submit(run, http, controller_arg="waits"),
            pool.submit(run, http, **controlled),
        ]
        assert wait_until(lambda: waits(server, 3), PATIENCE_S)
        with contextlib.suppress(ProcessLookupError):  # the watch may have been faster
            os.kill(hanging, signal.SIGKILL)
        running.wait()
        assert running.errors, "it had begun"
        assert [each.result(PATIENCE_S) for each in waiting] == expected


def test_an_answer_that_is_given_as_a_whole_begins_again(server: Server, http: httpx.Client, faults: Faults) -> None:
    """The engine dies after a hundred tokens of an answer that nobody has seen."""

    def complete() -> dict[str, Any]:
        body = {"prompt": "a whole answer", "max_tokens": 200, "seed": 3, "temperature": 1.0, "ignore_eos": True}
        answer: dict[str, Any] = http.post("/v1/completions", json=body).json()
        return {"choices": answer["choices"], "usage": answer["usage"]["completion_tokens"]}

    expected = complete()
    faults.cause("hangs_later")
    hanging = engine(server)
    with ThreadPoolExecutor() as pool:
        again = pool.submit(complete)
        assert wait_until(lambda: faults.has_happened("hangs_later"), PATIENCE_S)
        with contextlib.suppress(ProcessLookupError):  # the watch may have been faster
            os.kill(hanging, signal.SIGKILL)
        assert again.result(PATIENCE_S) == expected
    assert engine(server) != hanging


def test_a_stopped_engine_without_work_is_unhealthy_and_replaced(server: Server, http: httpx.Client) -> None:
    stopped = engine(server)
    family = {stopped, *descendants(stopped)}
    os.kill(stopped, signal.SIGSTOP)
    health = http.get("/health")
    assert health.status_code == 503
    assert list(health.json()["models"].values()) in (["hanging"], ["restarting"])
    assert "queue_capacity" in http.get("/stats").json()
    assert wait_until(lambda: http.get("/ready").status_code == 200, PATIENCE_S)
    assert wait_until(lambda: not alive(family), PATIENCE_S)
    assert engine(server) != stopped


@pytest.mark.parametrize("fault", ["hangs", "burns"])
def test_a_forward_pass_that_never_ends_is_ended_and_its_request_answered(
    server: Server, http: httpx.Client, faults: Faults, fault: str
) -> None:
    expected = run(http, controller_arg="again")
    before = engine(server)
    faults.cause(fault)
    assert run(http, controller_arg="again") == expected
    assert faults.has_happened(fault)
    assert engine(server) != before
    assert any("made no progress for 4 s" in line for line in server.said)


def test_a_request_that_kills_every_engine_kills_two(server: Server, http: httpx.Client, faults: Faults) -> None:
    before = http.get("/stats").json()["engine_restarts"]
    faults.cause("deadly")
    text, errors = run(http, controller_arg="die")
    faults.end("deadly")
    assert text == ""
    assert "two engines have died" in errors[0]
    assert wait_until(lambda: http.get("/ready").status_code == 200, PATIENCE_S)
    assert http.get("/stats").json()["engine_restarts"] == before + 2


def test_a_slow_first_pass_is_no_hang(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Six seconds of processor time before the first token."""
    faults = Faults(tmp_path)
    faults.cause("slow")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with serving("--model", str(model), "--threads", "1") as server, httpx.Client(base_url=server.url) as http:
        text, errors = run(httpx.Client(base_url=server.url, timeout=PATIENCE_S), controller_arg="x")
        assert (len(text) > 0, errors) == (True, [])
        assert faults.has_happened("slow")
        assert http.get("/stats").json()["engine_restarts"] == 0


def test_a_spare_engine_takes_over(model: Path) -> None:
    with (
        serving("--model", str(model), "--threads", "1", "--spare-engine") as server,
        httpx.Client(base_url=server.url, timeout=PATIENCE_S) as http,
    ):

        def engines() -> set[int]:
            return {pid for pid in descendants(server.process.pid) if command(pid) == "aici-engine"}

        def num_ready() -> int:
            return sum("a spare engine is ready" in line for line in server.said)

        expected = run(http, controller_arg="x")
        first = engines()
        assert wait_until(lambda: len(engines()) == 2, PATIENCE_S)
        [serves], [spare] = first, engines() - first
        assert wait_until(lambda: num_ready() == 1, PATIENCE_S)
        os.kill(spare, signal.SIGKILL)
        assert run(http, controller_arg="x") == expected
        assert wait_until(lambda: num_ready() == 2, PATIENCE_S)
        [second] = engines() - {serves, spare}
        os.kill(serves, signal.SIGKILL)
        assert wait_until(lambda: http.get("/ready").status_code == 200, PATIENCE_S)
        assert run(http, controller_arg="x") == expected
        assert second in engines()
        assert http.get("/stats").json()["engine_restarts"] == 1
    assert wait_until(lambda: not alive({serves, spare, second}), PATIENCE_S)
