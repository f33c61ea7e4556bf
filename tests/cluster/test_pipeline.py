"""A pipeline of threads with real sockets computes what one model computes."""

from collections import deque
from random import Random
from typing import TYPE_CHECKING

import pytest
import torch

from aici_engine.cluster.pipeline import PipelineExecutor
from aici_engine.local_executor import LocalExecutor
from aici_engine.step_input import StepInput
from tests.cluster.fake_model import whole
from tests.cluster.fake_pipeline import NUM_LAYERS, PAGE_SIZE, random_steps, running_pipeline

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
            assert torch.equal(pending.logits(), expected)
    for pending, expected in out:
        assert torch.equal(pending.logits(), expected)


@pytest.mark.parametrize("depth", [1, 3])
@pytest.mark.parametrize("cuts", [(2,), (6,), (0,), (2, 4), (0, 6), (0, 3, 5)])
def test_logits_are_those_of_one_process(cuts: tuple[int, ...], depth: int) -> None:
    with running_pipeline(len(cuts), cuts=cuts, depth=depth) as pipeline:
        for seed in range(3):
            compare(pipeline, list(random_steps(Random(seed), 25)), depth=depth)
