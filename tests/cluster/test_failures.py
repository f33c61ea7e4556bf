"""A pipeline of two stages on machines of their own, and all that can happen to a stage: same texts, no leaks."""

import asyncio
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.engine.support import write_tiny_model
from tests.support import netns
from tests.support.faults import FAULTS, asked_twice, holdings, named, noticed_after, settle, was_noticed
from tests.support.pipelines import KINDS, Outcome, Pipeline, ask, client, request, together
from tests.support.processes import wait_until

pytestmark = pytest.mark.e2e

REPLAY_TIMEOUT_S = 100  # a new stage needs seconds, and on a busy machine a minute
SHORT_REPLAY_TIMEOUT_S = 3
BODIES = [request(kind, number, length=200) for number in range(2) for kind in KINDS]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("tiny"), context=2048, num_layers=6, num_heads=2)


@pytest.fixture(scope="module")
def shared_network() -> Iterator[netns.Network]:
    if reason := netns.missing():
        pytest.skip(reason)
    with netns.Network() as network:
        yield network


@pytest.fixture(scope="module")
def undisturbed(shared_network: netns.Network, model: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Outcome]:
    """The texts of one process that holds the whole model, on a machine of its own."""
    with netns.Network() as network:
        alone = Pipeline(network, model, tmp_path_factory.mktemp("alone"), cuts=())
        outcomes = asyncio.run(together(alone.server.url, BODIES))
    for outcome in outcomes:
        assert outcome.done
        assert outcome.errors == []
    assert [len(outcome.texts) for outcome in outcomes] == [1, 1, 1, 3] * 2
    return outcomes


@pytest.fixture(scope="module")
def shared_pipeline(shared_network: netns.Network, model: Path, tmp_path_factory: pytest.TempPathFactory) -> Pipeline:
    folder = tmp_path_factory.mktemp("pipeline")
    return Pipeline(
        shared_network,
        model,
        folder,
        cuts=(2, 4),
        relayed=True,
        serve_args=("--replay-timeout", str(REPLAY_TIMEOUT_S)),
        env={"AICI_TRACE": str(folder / "trace-%p.jsonl")},
    )


@pytest.fixture
def pipeline(shared_pipeline: Pipeline) -> Iterator[Pipeline]:
    """A pipeline at rest. After the test, the pipeline must be at rest again, and stages hold no more than before."""
    assert asyncio.run(together(shared_pipeline.server.url, BODIES[:4]))[0].done
    processes = [stage.process for stage in shared_pipeline.stages]
    before = [holdings(process.pid) for process in processes]
    yield shared_pipeline
    assert settle(shared_pipeline) == {}
    assert asked_twice(shared_pipeline.folder.glob("trace-*")) == []
    for stage, process, then in zip(shared_pipeline.stages, processes, before, strict=True):
        if stage.process is process:
            now = holdings(process.pid)
            assert now.fds <= then.fds + 2, stage  # a connection that is closing
            assert now.threads <= then.threads, stage
            assert now.resident_bytes < then.resident_bytes + (16 << 20), stage


def disturb(pipeline: Pipeline, hurt: Callable[[], None]) -> tuple[list[Outcome], float]:
    """Start all requests, and call `hurt` when each has begun. Return the outcomes and the moment of the call."""

    async def main() -> tuple[list[Outcome], float]:
        async with client(pipeline.server.url) as http:
            outcomes = [Outcome() for _ in BODIES]
            runs = [ask(http, body, into=into) for body, into in zip(BODIES, outcomes, strict=True)]
            tasks = [asyncio.create_task(run) for run in runs]
            while not all(outcome.times or outcome.done for outcome in outcomes):
                await asyncio.sleep(0.005)
            moment = time.monotonic()
            await asyncio.to_thread(hurt)
            await asyncio.gather(*tasks)
            return outcomes, moment

    return asyncio.run(main())


def cut_off(outcomes: list[Outcome], moment: float, undisturbed: list[Outcome]) -> list[Outcome]:
    """Return the outcomes of requests that ran at `moment`. The others, which end before the last request begins on a
    busy machine, must be whole."""
    running = []
    for outcome, expected in zip(outcomes, undisturbed, strict=True):
        assert outcome.done
        if outcome.errors or outcome.times[-1] > moment:
            running.append(outcome)
        else:
            assert outcome.said == expected.said
    assert running
    return running


def texts(outcomes: list[Outcome]) -> list[tuple[dict[int, str], dict[int, str]]]:
    assert [outcome.errors for outcome in outcomes if outcome.errors] == []
    return [outcome.said for outcome in outcomes]


def test_the_text_is_that_of_one_process(pipeline: Pipeline, undisturbed: list[Outcome]) -> None:
    outcomes, began = disturb(pipeline, lambda: None)
    assert texts(outcomes) == texts(undisturbed)
    assert not was_noticed(pipeline, began)


@pytest.mark.parametrize(("which", "name"), [(0, "kill -9"), (1, "link down"), (0, "half-open"), (1, "SIGSTOP")])
def test_a_stage_is_lost_and_comes_back(pipeline: Pipeline, undisturbed: list[Outcome], which: int, name: str) -> None:
    fault, stage = FAULTS[name], pipeline.stages[which]
    pid = stage.process.pid

    def hurt() -> None:
        moment = time.monotonic()
        fault.hurt(stage)
        noticed_after(pipeline, moment, 30)
        fault.mend(stage)

    outcomes, _ = disturb(pipeline, hurt)
    assert texts(outcomes) == texts(undisturbed)
    assert (stage.process.pid == pid) == (name != "kill -9")


def test_a_stage_is_killed_while_nothing_runs(pipeline: Pipeline, undisturbed: list[Outcome]) -> None:
    moment = time.monotonic()
    FAULTS["kill -9"].hurt(pipeline.stages[1])
    noticed_after(pipeline, moment, 30)
    FAULTS["kill -9"].mend(pipeline.stages[1])
    assert texts(asyncio.run(together(pipeline.server.url, BODIES))) == texts(undisturbed)


def test_a_slow_link_changes_nothing(pipeline: Pipeline, undisturbed: list[Outcome]) -> None:
    """10 Mbit/s and 20 ms each way: no timeout fires."""
    stage = pipeline.stages[0]
    assert stage.relay is not None
    stage.machine.limit_rate(10_000_000)
    stage.relay.set(delay_s=0.02)
    try:
        bodies = [request(kind, 0, length=40) for kind in KINDS]
        began = time.monotonic()
        slow = texts(asyncio.run(together(pipeline.server.url, bodies)))
    finally:
        stage.machine.limit_rate(None)
        stage.relay.set()
    assert not was_noticed(pipeline, began)
    assert slow == texts(asyncio.run(together(pipeline.server.url, bodies)))


def test_the_runtime_is_killed_and_plain_requests_notice_nothing(
    pipeline: Pipeline, undisturbed: list[Outcome]
) -> None:
    [runtime] = [pid for pid in named(pipeline, "aicirt") if _parent(pid) not in named(pipeline, "aicirt")]
    outcomes, moment = disturb(pipeline, lambda: os.kill(runtime, signal.SIGKILL))
    running = cut_off(outcomes, moment, undisturbed)
    for body, outcome, expected in zip(BODIES, outcomes, undisturbed, strict=True):
        if body["controller"] == "none":
            assert (outcome.said, outcome.errors) == (expected.said, [])
        else:
            assert outcome.errors or outcome not in running
    assert wait_until(lambda: asyncio.run(together(pipeline.server.url, BODIES[1:2]))[0].errors == [], 30)


def test_the_driver_is_killed_and_the_stages_attach_again(pipeline: Pipeline, undisturbed: list[Outcome]) -> None:
    pids = [stage.process.pid for stage in pipeline.stages]
    read = [_bytes_read(pid) for pid in pids]
    [engine] = named(pipeline, "aici-engine")
    outcomes, moment = disturb(pipeline, lambda: os.kill(engine, signal.SIGKILL))
    assert all(outcome.errors for outcome in cut_off(outcomes, moment, undisturbed))
    assert wait_until(lambda: asyncio.run(together(pipeline.server.url, BODIES[:1]))[0].errors == [], 60)
    assert texts(asyncio.run(together(pipeline.server.url, BODIES))) == texts(undisturbed)
    assert [stage.process.pid for stage in pipeline.stages] == pids
    assert all(_bytes_read(pid) - before < 1 << 20 for pid, before in zip(pids, read, strict=True))


def test_a_new_server_attaches_and_gives_up_after_its_time(pipeline: Pipeline, undisturbed: list[Outcome]) -> None:
    """The server is killed. The next one waits only for a moment for a stage that is lost."""
    pids = [stage.process.pid for stage in pipeline.stages]
    disturb(pipeline, pipeline.server.process.kill)
    pipeline.serve_args = ("--replay-timeout", str(SHORT_REPLAY_TIMEOUT_S))
    pipeline.server = pipeline.serve().wait_ready()
    assert texts(asyncio.run(together(pipeline.server.url, BODIES))) == texts(undisturbed)
    assert [stage.process.pid for stage in pipeline.stages] == pids

    outcomes, moment = disturb(pipeline, lambda: FAULTS["kill -9"].hurt(pipeline.stages[1]))
    assert SHORT_REPLAY_TIMEOUT_S - 1 < time.monotonic() - moment < SHORT_REPLAY_TIMEOUT_S + 20
    for outcome in cut_off(outcomes, moment, undisturbed):
        assert "stage" in " ".join(outcome.errors) or "pipeline" in " ".join(outcome.errors), outcome.errors
    assert settle(pipeline) == {}

    [refused] = asyncio.run(together(pipeline.server.url, BODIES[:1]))
    assert refused.errors
    FAULTS["kill -9"].mend(pipeline.stages[1])
    assert wait_until(lambda: asyncio.run(together(pipeline.server.url, BODIES[:1]))[0].errors == [], 60)
    assert texts(asyncio.run(together(pipeline.server.url, BODIES))) == texts(undisturbed)


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def _bytes_read(pid: int) -> int:
    """Bytes that a process asked to read so far, from files and sockets."""
    fields = dict(line.split(": ") for line in Path(f"/proc/{pid}/io").read_text().splitlines())
    return int(fields["rchar"])
