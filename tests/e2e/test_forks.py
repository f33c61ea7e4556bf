"""Forks on the real runtime, from a guest's processes to the output of clients. The guest is
`tests/guests/lines.cpp`."""

import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest

from aici_engine.config import EngineConfig, SamplingParams
from aici_engine.engine import Engine
from aici_engine.events import Event, FinishReason, ForkEvent, TokenEvent
from aici_engine.request import ControllerCall, Request, RequestHandle
from aici_runtime.client import Runtime, RuntimeConfig
from tests.engine.programs import Told, by_fork
from tests.engine.support import write_tiny_model
from tests.support.cli import aici
from tests.support.guests import build_test_guest
from tests.support.processes import command, descendants, wait_until
from tests.support.server import Server

pytestmark = pytest.mark.e2e

MAX_FORKS = 36
CAPITALS = "fixed The capital of\nfork 2\n0:fixed  France is\n1:fixed  Italy is\ngen  (Paris|Rome|Berlin)"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("tiny"), num_heads=2)


@pytest.fixture(scope="module")
def tiny_runtime(model: Path) -> Iterator[Runtime]:
    with Runtime(RuntimeConfig(tokenizer=model, max_forks=MAX_FORKS)) as runtime:
        runtime.wait_ready()
        yield runtime


@contextmanager
def tiny_engine(model: Path, runtime: Runtime, **changes: Any) -> Iterator[Engine]:
    """An engine that must leave no guest, variable store or page behind."""
    config = {"num_pages": 400, "page_size": 4, "max_num_seqs": 8, "max_batch_tokens": 64} | changes
    with Engine(EngineConfig(model_dir=model, **config), runtime=runtime) as engine:
        yield engine
        assert wait_until(lambda: not workers(runtime), 5), workers(runtime)
        assert engine.get_stats()["cache_usage"] == 0.0
        engine._components.cache.check_integrity()


@pytest.fixture
def tiny(model: Path, tiny_runtime: Runtime) -> Iterator[Engine]:
    with tiny_engine(model, tiny_runtime) as engine:
        yield engine


def workers(runtime: Runtime) -> list[int]:
    return sorted(pid for pid in descendants(runtime.pid) if command(pid) in ("aicirt-seq", "aicirt-comms"))


def submit(engine: Engine, runtime: Runtime, *lines: str, prompt: str = "Hello", **sampling: Any) -> RequestHandle:
    module_id = runtime.mk_module(build_test_guest("lines").read_bytes()).module_id
    params = SamplingParams(**{"temperature": 0.0} | sampling)
    return engine.submit(
        Request(prompt=prompt, sampling=params, controller=ControllerCall(module_id, "\n".join(lines)))
    )


def run(engine: Engine, runtime: Runtime, *lines: str, **sampling: Any) -> dict[int, Told]:
    return by_fork(list(submit(engine, runtime, *lines, **sampling).events()))


def texts(forks: dict[int, Told]) -> list[str]:
    return [told.end.text for told in forks.values() if told.end]


def errors(forks: dict[int, Told]) -> list[str]:
    return [str(told.end.error or "") for told in forks.values() if told.end]


def test_each_fork_goes_its_way_on_a_real_model(engine: Engine, runtime: Runtime) -> None:
    forks = run(engine, runtime, *CAPITALS.split("\n"), prompt="Geography. ")
    assert texts(forks) == ["The capital of France is Paris", "The capital of Italy is Rome"]
    assert [told.stream for told in forks.values()] == texts(forks)


def test_variables_are_shared_and_waiting_ends_when_they_are_set(tiny: Engine, tiny_runtime: Runtime) -> None:
    forks = run(tiny, tiny_runtime, "fork 2", "0:wait x", "0:gen a{3}", "0:set y 2", "1:gen b{9}", "1:set x 1",
                "1:wait y", "fixed !", "fork 3", "gen c")  # fmt: skip
    assert sorted(texts(forks)) == sorted(["aaa!c"] * 3 + ["bbbbbbbbb!c"] * 3)


def test_variables_outlive_the_root(tiny: Engine, tiny_runtime: Runtime) -> None:
    forks = run(tiny, tiny_runtime, "set x 1", "fork 3", "1:gen b{9}", "1:set y 1", "2:wait y", "2:wait x", "2:gen c")
    assert texts(forks) == ["", "b" * 9, "c"]
    assert errors(forks) == [""] * 3


def test_forks_that_all_wait_are_deadlocked(tiny: Engine, tiny_runtime: Runtime) -> None:
    forks = run(tiny, tiny_runtime, "fork 3", "0:gen ab", "0:wait x", "1:wait y", "2:gen c")
    assert texts(forks) == ["ab", "", "c"]
    reasons = [told.end.reason for told in forks.values() if told.end]
    assert reasons == [FinishReason.DEADLOCK] * 2 + [FinishReason.STOP]


def test_a_fork_bomb_stops_at_the_limit(tiny: Engine, tiny_runtime: Runtime) -> None:
    """The guest asks for sixty-four forks. Refused forks leave nothing behind either: the second round is like the
    first."""
    for _ in range(2):
        forks = run(tiny, tiny_runtime, *["fork 4"] * 3, "gen [a-z]{9}")
        assert all(len(text) == 9 for text, error in zip(texts(forks), errors(forks), strict=True) if not error)
        assert errors(forks).count("") == MAX_FORKS
        refused = [error for error in errors(forks) if error]
        assert set(refused) == {f"Worker: too many forks (max={MAX_FORKS})"}
        assert len(forks) == 64


def test_too_many_forks_at_once_fail_with_the_reason(tiny: Engine, tiny_runtime: Runtime) -> None:
    [error] = errors(run(tiny, tiny_runtime, f"fork {MAX_FORKS + 1}"))
    assert f"too many forks (max={MAX_FORKS})" in error


def test_thirty_two_forks_and_thirty_two_requests(tiny: Engine, tiny_runtime: Runtime) -> None:
    before = ["fixed " + "p" * 60, "gen [a-z]{2}"]
    forks = run(tiny, tiny_runtime, before[0], "fork 32", "free 10", temperature=1.0, seed=5)
    handles = [submit(tiny, tiny_runtime, before[0], "free 10", temperature=1.0, seed=5 + k) for k in range(32)]
    assert texts(forks) == [handle.wait().text for handle in handles]
    assert len(set(texts(forks))) > 16


def test_few_pages_give_the_same_texts(model: Path, tiny_runtime: Runtime, tiny: Engine) -> None:
    lines = ["fixed " + "p" * 30, "fork 6", "0:wait x", "1:wait x", "2:free 25", "3:gen a{30}", "4:free 9", "4:set x 1",
             "free 8"]  # fmt: skip
    whole = run(tiny, tiny_runtime, *lines)
    tiny.shutdown()
    with tiny_engine(
        model, tiny_runtime, num_pages=36, max_num_seqs=4, max_batch_tokens=12, prefix_cache=False
    ) as narrow:
        handles = [submit(narrow, tiny_runtime, *lines) for _ in range(2)]
        assert [texts(by_fork(list(handle.events()))) for handle in handles] == [texts(whole)] * 2
        assert narrow.get_stats()["num_preemptions"] > 0
    assert errors(whole) == [""] * 6


def test_an_abort_ends_every_guest(tiny: Engine, tiny_runtime: Runtime) -> None:
    handle = submit(tiny, tiny_runtime, "fork 5", "0:wait x", "gen [a-z]{240}")
    seen: list[Event] = []
    for event in handle.events():
        seen.append(event)
        if isinstance(event, ForkEvent) and isinstance(event.event, TokenEvent):
            handle.abort()
    ends = [told.end for told in by_fork(seen).values()]
    assert [end.reason for end in ends if end] == [FinishReason.ABORT] * 5


def test_a_fork_that_is_killed_fails_alone(tiny: Engine, tiny_runtime: Runtime) -> None:
    handle = submit(tiny, tiny_runtime, "fork 3", "gen [a-z]{200}")
    seen: list[Event] = []
    killed = False
    for event in handle.events():
        seen.append(event)
        if not killed and isinstance(event, ForkEvent) and isinstance(event.event, TokenEvent):
            os.kill(max(pid for pid in workers(tiny_runtime) if command(pid) == "aicirt-seq"), signal.SIGKILL)
            killed = True
    forks = by_fork(seen)
    assert sorted(errors(forks)) == ["", "", "Worker: died"]
    assert errors(forks)[0] == ""
    assert sorted(len(text) == 200 for text in texts(forks)) == [False, True, True]


@pytest.mark.parametrize(("what", "said"), [("trap", "unreachable"), ("spin", "time")])
def test_a_fork_that_breaks_fails_alone(tiny: Engine, tiny_runtime: Runtime, what: str, said: str) -> None:
    forks = run(tiny, tiny_runtime, "fixed a", "fork 3", f"1:{what}", "gen b{20}")
    assert texts(forks) == ["a" + "b" * 20, "a", "a" + "b" * 20]
    assert said in errors(forks)[1]
    assert [error != "" for error in errors(forks)] == [False, True, False]


def run_args(*more: str) -> list[str]:
    lines = CAPITALS + "\n0:set x France\n1:log from Italy"
    return ["run", "--controller", str(build_test_guest("lines")), "--controller-arg", lines, *more, "Geography. "]


def test_run_prints_each_fork(server: Server) -> None:
    there, here = aici(*run_args("--json", "--server", server.url)), aici(*run_args("--json"))
    assert (here.returncode, there.returncode) == (0, 0), there.stderr
    shown, remote = json.loads(here.stdout), json.loads(there.stdout)
    for document in (shown, remote):
        assert [fork["text"][-5:] for fork in document["forks"]] == ["Paris", " Rome"]
        assert [fork["parent"] for fork in document["forks"]] == [None, 0]
        assert document["variables"] == {"x": "France"}
        assert document["forks"][1]["logs"].endswith("from Italy\n")
        document.pop("timings")
    assert shown == remote


def test_run_tells_forks_apart_in_text(server: Server) -> None:
    done = aici(*run_args("--log", "--server", server.url))
    blocks = "[0] The capital of France is Paris\n[1] The capital of Italy is Rome\n"
    # The text before the fork is streamed; its length depends on the tokens that came in one message.
    begin, _, shown = done.stdout.partition("[0]")
    assert (done.returncode, "[0]" + shown) == (0, blocks)
    assert "The capital of\n".startswith(begin)
    assert "\n[1] from Italy\n" in done.stderr
    failed = aici("run", "--controller", str(build_test_guest("lines")), "--server", server.url,
                  "--controller-arg", "fixed a\nfork 3\n1:wait x\n2:wait y", "x")  # fmt: skip
    assert failed.returncode == 1
    assert failed.stdout.endswith("[0] a\n[1] a\n[2] a\n")
    assert failed.stderr.count("no other fork is left to wake it") == 2
    assert "error: [1] the controller waits" in failed.stderr


def test_rest_lists_every_fork_at_every_step(server: Server) -> None:
    wasm = build_test_guest("lines").read_bytes()
    module_id = httpx.post(f"{server.url}/v1/controllers", content=wasm, timeout=60).json()["module_id"]
    request = {"controller": module_id, "controller_arg": CAPITALS, "prompt": "Geography. "}
    answer = httpx.post(f"{server.url}/v1/run", json=request, timeout=60)
    lines = [line.removeprefix("data: ") for line in answer.text.split("\n\n") if line]
    assert lines.pop() == "[DONE]"
    _, *runs = map(json.loads, lines)
    numbers = [len(run["forks"]) for run in runs]
    assert numbers == sorted(numbers)
    assert numbers[-1] == 2
    streams = ["".join(run["forks"][k]["text"] for run in runs if len(run["forks"]) > k) for k in range(2)]
    assert streams == ["The capital of France is Paris", "The capital of Italy is Rome"]
    assert [fork["finish_reason"] for fork in runs[-1]["forks"]] == ["aici-stop"] * 2


def test_max_forks_is_a_setting(model: Path) -> None:
    args = ["--controller", str(build_test_guest("lines")), "--controller-arg", "fork 20\nfixed a"]
    done = aici("run", *args, "--max-forks", "20", "--model", str(model), "--json", "x")
    assert len(json.loads(done.stdout)["forks"]) == 20
    there = aici("run", "--max-forks", "20", "--server", "http://localhost:1", "x")
    assert (there.returncode, "--max-forks is not for --server" in there.stderr) == (2, True)
