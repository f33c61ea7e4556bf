"""Programs of guests on the real vLLM with two ranks and a small cache; ranks that die.

Needs `AICI_TEST_VLLM=""` in an environment with vLLM, pytest and aici: see `CONTRIBUTING.md`.
"""

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from aici_base.errors import AiciError
from aici_engine.config import EngineConfig, SamplingParams, VllmSettings
from aici_engine.engine import Engine
from aici_engine.events import FinishReason
from aici_engine.request import ControllerCall, Request, RequestHandle
from aici_engine.server.link.engine_watch import below
from tests.engine.programs import Program, Step, by_fork, expected
from tests.engine.support import ScriptedRuntime, wait_for_token, write_tiny_model

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif("AICI_TEST_VLLM" not in os.environ, reason="AICI_TEST_VLLM is not set: see this file's head"),
]

PROMPT = "Hello, vLLM"
FLAGS = ("--enforce-eager", "--kv-cache-memory-bytes", "67108864")
TENSOR_PARALLEL = ("--tensor-parallel-size", "2")
PIPELINE = ("--pipeline-parallel-size", "2")
SMALL_CACHE = ("--block-size", "32", "--num-gpu-blocks-override", "9")
PROGRAMS: dict[str, list[Step]] = {
    "masks": [("say", "masks alone")],
    "forced tokens": [("say", "a"), ("force", "bc"), ("say", "d"), ("force", "ef")],
    "splice": [("say", "ab"), ("force", "cd"), ("say", "e"), ("back", 2, "x"), ("say", "!")],
    "backtrack": [("say", "abcdef"), ("back", 3, "xyz"), ("say", "!")],
    "fork 4": [("fork", [[("say", "a")], [("force", "b")], [("say", "cd")], [("idle", 2)]]), ("say", "!")],
    "suspend and wake": [("fork", [[("wait", "v"), ("say", "heard")], [("say", "says"), ("set", "v", "1")]])],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two heads of 32 numbers: vLLM's attention on CPUs has no smaller heads, and two ranks divide the heads."""
    return write_tiny_model(tmp_path_factory.mktemp("tiny"), num_heads=2, hidden_size=64)


@contextlib.contextmanager
def on_vllm(
    folder: Path, runtime: ScriptedRuntime, *flags: str, has_failed: threading.Event | None = None
) -> Iterator[Engine]:
    vllm = VllmSettings(args=(*FLAGS, *flags))
    config = EngineConfig(model_dir=folder, dtype="bfloat16", max_num_seqs=4, vllm=vllm)
    with Engine(config, runtime=runtime, on_fatal=(has_failed or threading.Event()).set) as engine:
        yield engine


def scripted() -> ScriptedRuntime:
    return ScriptedRuntime({"program": Program})


@pytest.fixture(scope="module")
def runtime() -> ScriptedRuntime:
    return scripted()


@pytest.fixture(scope="module", params=[TENSOR_PARALLEL, PIPELINE], ids=["tensor parallel", "pipeline"])
def engine(folder: Path, runtime: ScriptedRuntime, request: pytest.FixtureRequest) -> Iterator[Engine]:
    with on_vllm(folder, runtime, *request.param, *SMALL_CACHE) as engine:
        yield engine


def submit(engine: Engine, program: list[Step], **sampling: int) -> RequestHandle:
    call = ControllerCall("program", list(program))
    return engine.submit(Request(prompt=PROMPT, sampling=SamplingParams(**sampling), controller=call))


def plain(engine: Engine, **sampling: int) -> RequestHandle:
    return engine.submit(Request(prompt=PROMPT, sampling=SamplingParams(ignore_eos=True, temperature=0.0, **sampling)))


def rank_pids() -> list[int]:
    """The processes of vLLM's ranks, which name themselves."""
    names = {pid: Path(f"/proc/{pid}/comm").read_text() for pid in below(os.getpid())}
    return [pid for pid, name in names.items() if name.startswith("VLLM::Worker")]


def no_cache_in_use(engine: Engine) -> bool:
    deadline = time.monotonic() + 30
    while engine.get_stats()["cache_usage"] and time.monotonic() < deadline:
        time.sleep(0.01)
    return engine.get_stats()["cache_usage"] == 0.0


@pytest.mark.parametrize("name", PROGRAMS)
def test_guests_hear_the_same_as_on_the_own_engine(
    engine: Engine, runtime: ScriptedRuntime, folder: Path, name: str
) -> None:
    num_before = len(runtime.all)
    forks = by_fork(list(submit(engine, PROGRAMS[name]).events()))
    assert sorted(told.end.text for told in forks.values() if told.end) == sorted(expected(PROGRAMS[name]))
    own = scripted()
    with Engine(EngineConfig(model_dir=folder), runtime=own) as native:
        wanted = by_fork(list(submit(native, PROGRAMS[name]).events()))
    assert {told.lineage for told in forks.values()} == {told.lineage for told in wanted.values()}
    assert [guest.told for guest in runtime.all[num_before:]] == [guest.told for guest in own.all]


def test_masks_hold_for_rows_that_vllm_preempts(engine: Engine) -> None:
    before = engine.get_stats()["num_preemptions"]
    handles = [submit(engine, [("any", 90), ("force", "."), ("any", 5)], seed=seed) for seed in range(4)]
    for handle in handles:
        end = handle.wait()
        assert end.reason is FinishReason.STOP, end.error
        assert len(end.text) == 96
        assert end.text.isascii()
        assert end.text.isprintable()
        assert end.text[90] == "."
    assert engine.get_stats()["num_preemptions"] > before
    assert no_cache_in_use(engine)


def test_aborts_at_any_step_leave_neither_guest_nor_cache(engine: Engine, runtime: ScriptedRuntime) -> None:
    program: list[Step] = [("say", "ab"), ("force", "cd"), ("fork", [[("any", 40)], [("any", 40)]])]
    for num_events in range(10):
        handle = submit(engine, program)
        events = handle.events()
        for _ in range(num_events):
            next(events, None)
        handle.abort()
        handle.wait()
    assert no_cache_in_use(engine)
    assert not runtime.live


def test_a_rank_that_dies_under_load_ends_the_engine(folder: Path) -> None:
    has_failed = threading.Event()
    with on_vllm(folder, scripted(), *TENSOR_PARALLEL, has_failed=has_failed) as engine:
        running = plain(engine, max_tokens=200)
        wait_for_token(running)
        os.kill(rank_pids()[-1], signal.SIGKILL)
        assert running.wait().reason is FinishReason.FAIL
        assert has_failed.wait(30)
        with pytest.raises(AiciError, match="the engine failed"):
            engine.check_alive()


def test_a_silent_rank_ends_an_engine_without_requests(folder: Path) -> None:
    """vLLM itself would notice after 300 s of the next request."""
    has_failed = threading.Event()
    with on_vllm(folder, scripted(), *TENSOR_PARALLEL, has_failed=has_failed) as engine:
        assert plain(engine, max_tokens=2).wait().reason is FinishReason.LENGTH
        os.kill(rank_pids()[-1], signal.SIGSTOP)
        assert has_failed.wait(60)
        with pytest.raises(AiciError, match="the engine failed"):
            engine.check_alive()
