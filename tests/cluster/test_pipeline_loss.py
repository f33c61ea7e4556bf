"""Stages and drivers that go and come back, refuse, or fail: in threads with real sockets."""

import gc
import queue
import socket
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest
import torch

from aici_base.errors import AiciError, UnavailableError, UsageError
from aici_base.ids import SeqId, TokenId
from aici_engine.cache.ids import PageId
from aici_engine.cluster.address import StageAddress
from aici_engine.cluster.frames import Attach, Detach, StageFacts, StageLoaded, decode_from_stage
from aici_engine.cluster.link import LinkGroup, StageLink
from aici_engine.cluster.link_server import KeyPair
from aici_engine.cluster.pipeline import PipelineExecutor
from aici_engine.cluster.token import ClusterToken
from aici_engine.executor import StateLostError
from aici_engine.local_executor import LocalExecutor
from aici_engine.model.stage_range import LayerRange
from aici_engine.step_input import Chunk, PageCopy, StepInput
from tests.cluster.fake_model import whole
from tests.cluster.fake_pipeline import (
    NUM_LAYERS,
    PAGE_SIZE,
    FakeLoader,
    load_frame,
    random_steps,
    running_driver,
    running_stage,
)
from tests.cluster.test_pipeline import compare
from tests.support.processes import wait_until

if TYPE_CHECKING:
    from aici_engine.cache.storage import KVStorage

TOKEN = ClusterToken.new()


class StageInThread:
    """A stage that can be ended and started again at the same address. `loader`: of its present life."""

    def __init__(self, stack: ExitStack) -> None:
        self._keys = KeyPair.new()
        self._stack = stack
        self.address: StageAddress | None = None
        self.start()

    def start(self) -> None:
        self.loader = FakeLoader()
        self._life = self._stack.enter_context(ExitStack())
        listen = {} if self.address is None else {"listen": self.address._replace(key=None)}
        self.address = self._life.enter_context(running_stage(TOKEN, self.loader, keys=self._keys, **listen))

    def end(self) -> None:
        self._life.close()


@contextmanager
def pipeline_of(num_stages: int = 2) -> Iterator[tuple[PipelineExecutor, list[StageInThread]]]:
    with ExitStack() as stack:
        stages = [StageInThread(stack) for _ in range(num_stages)]
        driver = stack.enter_context(running_driver(TOKEN, [stage.address for stage in stages]))
        yield driver, stages


def restore(pipeline: PipelineExecutor, timeout_s: float = 10) -> None:
    deadline = time.monotonic() + timeout_s
    while not pipeline.restore(0.05):
        assert time.monotonic() < deadline


def steps(count: int = 8) -> list[StepInput]:
    return list(random_steps(Random(5), count))


@pytest.mark.parametrize("which", [0, 1])
def test_an_idle_pipeline_reports_a_lost_stage_and_takes_it_back(which: int) -> None:
    with pipeline_of() as (pipeline, stages):
        compare(pipeline, steps(), depth=2)
        heard: queue.Queue[StateLostError] = queue.Queue()
        pipeline.watch(heard.put)
        stages[which].end()
        assert "interrupted" in heard.get(timeout=2).message
        assert pipeline.status()["state"] == "interrupted"
        with pytest.raises(StateLostError):
            pipeline.begin(steps(1)[0])
        assert not pipeline.restore(0.05)
        stages[which].start()
        restore(pipeline)
        compare(pipeline, steps(), depth=2)
        assert pipeline.status()["interruptions"] == 1
        assert [len(stage.loader.models) for stage in stages] == [1, 1]  # the other stage has kept its weights


@pytest.mark.parametrize("which", [0, 1])
def test_steps_in_flight_end_with_a_lost_stage(which: int) -> None:
    with pipeline_of() as (pipeline, stages):
        first, second, *_ = steps()
        pipeline.begin(first).logits()
        stages[which].end()
        with pytest.raises(StateLostError):
            pipeline.begin(second).logits()
        stages[which].start()
        restore(pipeline)
        compare(pipeline, steps(), depth=3)


def test_nothing_of_an_old_epoch_stays() -> None:
    """Caches, sockets and threads go with their epoch, and need no garbage collection."""
    with pipeline_of() as (pipeline, stages):
        caches: list[weakref.ref[KVStorage]] = []
        counts = []
        gc.disable()
        try:
            for _ in range(4):
                assert pipeline._epoch is not None
                caches.append(weakref.ref(pipeline._epoch.storage))
                flights = [pipeline.begin(step) for step in steps(2)]
                flights[0].logits()
                counts.append((len(list(Path("/proc/self/fd").iterdir())), threading.active_count()))
                stages[1].end()
                with pytest.raises(StateLostError):
                    pipeline.begin(steps(1)[0]).logits()
                assert not pipeline.restore(0.3)
                assert [cache for cache in caches if cache() is not None] == []
                stages[1].start()
                restore(pipeline)
        finally:
            gc.enable()
        assert len(set(counts[1:])) == 1


def test_a_stage_hears_its_driver_while_the_next_stage_is_silent() -> None:
    part = LayerRange(0, 3, embedding=True, head=False)
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        running_stage(TOKEN) as address,
        LinkGroup(TOKEN, role="driver", name="a driver") as group,
        StageLink(group, address, decode_from_stage, max_body_bytes=0) as link,
    ):
        link.wait_ready()
        link.send(load_frame(part))
        silent_stage = StageAddress("127.0.0.1", silent.getsockname()[1], KeyPair.new().public)
        link.send(Attach(1, 0, 2, str(silent_stage), 4, PAGE_SIZE, 64, 64, rows_only=False))
        link.send(Detach(1))
        link.send(load_frame(part))
        answers = [link.receive(timeout_s=2) for _ in range(3)]
        assert [type(answer and answer.message) for answer in answers] == [StageFacts, StageLoaded, StageLoaded]


def test_the_log_of_a_stage_tells_of_drivers_that_use_it(caplog: pytest.LogCaptureFixture) -> None:
    """While another stage is away, the driver comes several times a second and asks for facts only."""
    caplog.set_level("INFO", logger="aici_engine.cluster.stage_process")

    def said() -> list[str]:
        return [line for line in caplog.messages if line.startswith("the driver")]

    with running_stage(TOKEN) as address:
        for name in ("looks", "looks", "uses"):
            with (
                LinkGroup(TOKEN, role="driver", name=name) as group,
                StageLink(group, address, decode_from_stage, max_body_bytes=0) as link,
            ):
                link.wait_ready()
                if name == "uses":
                    link.send(load_frame(LayerRange(0, 3, embedding=True, head=False)))
                    assert wait_until(lambda: len(said()) == 1, 10)
        assert wait_until(lambda: len(said()) == 2, 10)
        assert said() == ["the driver uses is here", "the driver uses is gone"]


def test_pages_of_the_last_epoch_are_not_believed() -> None:
    with pipeline_of() as (pipeline, stages):
        for step in steps():
            pipeline.begin(step).logits()
        old = pipeline.status()["epoch"]
        stages[1].end()
        stages[1].start()
        with pytest.raises(StateLostError):
            pipeline.begin(steps(1)[0]).logits()
        restore(pipeline)
        assert pipeline.status()["epoch"] == old + 1
        pages = [PageId(0)]
        alone = LocalExecutor(whole(NUM_LAYERS), num_pages=40, page_size=PAGE_SIZE)
        step = StepInput([Chunk(SeqId(1), [TokenId(3), TokenId(4)], 0, pages, 2)])
        assert torch.equal(pipeline.begin(step).logits(), alone.begin(step).logits())


def test_a_second_driver_is_refused_by_name_until_the_first_is_gone() -> None:
    with running_stage(TOKEN, loader := FakeLoader()) as address:
        with running_driver(TOKEN, [address], name="driver A") as first:
            with pytest.raises(AiciError, match="serves another driver, driver A"), running_driver(TOKEN, [address]):
                pass
            compare(first, steps(), depth=2)  # the first has not noticed
        with running_driver(TOKEN, [address], name="driver B", patience_s=2) as second:
            compare(second, steps(), depth=2)
            assert second.status()["epoch"] == 2
        assert len(loader.models) == 1


@pytest.mark.parametrize("stage", [0, 1])
def test_a_failed_step_fails_alone(stage: int) -> None:
    with ExitStack() as stack:
        loaders = [FakeLoader(fails_at_run=2 if i == stage else 0) for i in range(2)]
        addresses = [stack.enter_context(running_stage(TOKEN, loader)) for loader in loaders]
        pipeline = stack.enter_context(running_driver(TOKEN, addresses, cuts=(2, 4)))
        alone = LocalExecutor(whole(NUM_LAYERS), num_pages=40, page_size=PAGE_SIZE)
        good = StepInput([Chunk(SeqId(1), [TokenId(3), TokenId(4)], 0, [PageId(0)], 1)])
        failing = StepInput(
            [Chunk(SeqId(2), [TokenId(13)], 0, [PageId(1)], 1)], [PageCopy(PageId(0), PageId(2))], [SeqId(1)]
        )
        # The pages of sequence 3 begin with the copy that the failed step has made.
        after = StepInput([Chunk(SeqId(3), [TokenId(9)], 2, [PageId(2)], 1)])
        sent = [pipeline.begin(step) for step in (good, failing, after)]
        expected = [alone.begin(step).logits().clone() for step in (good, failing, after)]
        assert torch.equal(sent[0].logits(), expected[0])
        with pytest.raises(AiciError, match="a fault of the model") as caught:
            sent[1].logits()
        assert not isinstance(caught.value, StateLostError)
        assert torch.equal(sent[2].logits(), expected[2])
        assert pipeline.status()["interruptions"] == 0


def test_a_stage_with_too_little_memory_is_named() -> None:
    with (
        running_stage(TOKEN, memory_bytes=2000 + 5 * 128) as address,
        pytest.raises(UsageError, match=f"{address.endpoint} has memory for 5 pages of 4 tokens, and 40 are needed"),
        running_driver(TOKEN, [address], cuts=[2]),
    ):
        pass


def test_pages_are_the_least_that_all_stages_have() -> None:
    with ExitStack() as stack:
        rooms = (2000 + 30 * 128, 2000 + 20 * 128)
        addresses = [stack.enter_context(running_stage(TOKEN, memory_bytes=room)) for room in rooms]
        pipeline = stack.enter_context(running_driver(TOKEN, addresses, cuts=(2, 4), num_pages=None))
        assert pipeline.num_pages == 20


def other_key(address: StageAddress) -> StageAddress:
    return address._replace(key=KeyPair.new().public)


def other_port(address: StageAddress) -> StageAddress:
    return address._replace(port=1)


@pytest.mark.parametrize(
    ("change", "token", "message"),
    [
        (other_key, TOKEN, "another key than its address says"),
        (other_port, TOKEN, "Connection refused"),
        (lambda address: address, ClusterToken.new(), "tokens differ"),
    ],
    ids=["key", "port", "token"],
)
def test_a_stage_that_cannot_be_had_says_why(
    change: Callable[[StageAddress], StageAddress], token: ClusterToken, message: str
) -> None:
    with (
        running_stage(TOKEN) as address,
        pytest.raises(UnavailableError, match=message),
        running_driver(token, [change(address)]),
    ):
        pass


def test_a_model_with_fewer_layers_than_stages_is_refused() -> None:
    with ExitStack() as stack:
        addresses = [stack.enter_context(running_stage(TOKEN)) for _ in range(7)]
        with pytest.raises(UsageError, match="nothing to compute"):
            stack.enter_context(running_driver(TOKEN, addresses))
