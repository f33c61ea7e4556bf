"""A stage whose computing hangs while its connections are fine: heartbeats come from another thread."""

import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack

import pytest
import torch

from aici_base.ids import SeqId, TokenId
from aici_engine.cache.storage import KVStorage
from aici_engine.cluster.token import ClusterToken
from aici_engine.executor import StateLostError
from aici_engine.model.stage_range import LayerRange
from aici_engine.step_input import Chunk, StepInput
from tests.cluster.fake_model import FakeStage
from tests.cluster.fake_pipeline import FakeLoader, running_driver, running_stage

STEP = StepInput([Chunk(SeqId(1), [TokenId(1)], 0, [0], 1)])


class HangingStage(FakeStage):
    """Computes when `may_run` is set."""

    def __init__(self, part: LayerRange, may_run: threading.Event) -> None:
        super().__init__(part)
        self._may_run = may_run

    def run(self, storage: KVStorage, chunks: Sequence[Chunk], states: torch.Tensor | None) -> torch.Tensor:
        self._may_run.wait(60)
        return super().run(storage, chunks, states)


class HangingLoader(FakeLoader):
    def __init__(self, may_run: threading.Event) -> None:
        super().__init__()
        self._may_run = may_run

    def finish(self) -> FakeStage:
        self.models.append(HangingStage(self._part, self._may_run))
        return self.models[-1]


def test_a_stage_that_hangs_is_lost_and_comes_back() -> None:
    may_run = threading.Event()
    may_run.set()
    token = ClusterToken.new()
    with ExitStack() as stack:
        addresses = [
            stack.enter_context(running_stage(token)),
            stack.enter_context(running_stage(token, HangingLoader(may_run))),
        ]
        driver = stack.enter_context(running_driver(token, addresses, cuts=(2, 4)))
        expected = driver.begin(STEP).logits().clone()
        may_run.clear()
        began = time.monotonic()
        with pytest.raises(StateLostError, match="far longer"):
            driver.begin(STEP).logits()
        assert 4 < time.monotonic() - began < 30
        assert not driver.restore(0.1)
        may_run.set()
        deadline = time.monotonic() + 60
        while not driver.restore(0.1):
            assert time.monotonic() < deadline
        assert torch.equal(driver.begin(STEP).logits(), expected)
