"""A pipeline of threads with real sockets computes what one model computes."""

from collections import deque
from collections.abc import Sequence
from random import Random
from typing import TYPE_CHECKING

import pytest
import torch

from aici_base.ids import SeqId, TokenId
from aici_engine.cache.ids import PageId
from aici_engine.cache.storage import KVStorage
from aici_engine.cluster.pipeline import PipelineExecutor
from aici_engine.cluster.token import ClusterToken
from aici_engine.executor import StateLostError
from aici_engine.local_executor import LocalExecutor
from aici_engine.step_input import Chunk, StepInput
from tests.cluster.fake_model import FakeStage, whole
from tests.cluster.fake_pipeline import (
    NUM_LAYERS,
    PAGE_SIZE,
    FakeLoader,
    random_steps,
    running_driver,
    running_pipeline,
    running_stage,
)

if TYPE_CHECKING:
    from aici_engine.executor import PendingStep


def compare(pipeline: PipelineExecutor, steps: list[StepInput], *, depth: int) -> None:
    """Run `steps` with up to `depth` in flight, and compare the logits with those of one process."""
    alone = LocalExecutor(whole(NUM_LAYERS), num_pages=40, page_size=PAGE_SIZE)
    out: deque[tuple[PendingStep, torch.Tensor]] = deque()
    for step in steps:
        out.append((pipeline.begin(step), alone.begin(step).logits().clone()))
        if len(out) == depth:
            pending, expected = out.popleft()
            assert torch.equal(torch.as_tensor(pending.logits()), expected)
    for pending, expected in out:
        assert torch.equal(torch.as_tensor(pending.logits()), expected)


@pytest.mark.parametrize("depth", [1, 3])
@pytest.mark.parametrize("cuts", [(2,), (6,), (0,), (2, 4), (0, 6), (0, 3, 5)])
def test_logits_are_those_of_one_process(cuts: tuple[int, ...], depth: int) -> None:
    with running_pipeline(len(cuts), cuts=cuts, depth=depth) as pipeline:
        for seed in range(3):
            compare(pipeline, list(random_steps(Random(seed), 25)), depth=depth)


class ShortStage(FakeStage):
    """Leaves out a row."""

    def run(self, storage: KVStorage, chunks: Sequence[Chunk], states: torch.Tensor | None) -> torch.Tensor:
        return super().run(storage, chunks, states)[1:]


class ShortLoader(FakeLoader):
    def finish(self) -> FakeStage:
        return ShortStage(self._part)


def test_states_of_another_size_do_not_reach_the_kernels() -> None:
    token = ClusterToken.new()
    with running_stage(token, ShortLoader()) as address, running_driver(token, [address], cuts=[2]) as pipeline:
        step = StepInput([Chunk(SeqId(1), [TokenId(1), TokenId(2)], 0, [PageId(0)], 1)])
        with pytest.raises(StateLostError, match="states have"):
            pipeline.begin(step).logits()
