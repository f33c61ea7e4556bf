import threading
from typing import Any

import pytest

from aici_base.errors import AiciError
from aici_base.ids import SeqId, TokenId
from aici_engine.cache.ids import PageId
from aici_engine.local_executor import ComputedStep
from aici_engine.pass_thread import PassThread
from aici_engine.step_input import Chunk, StepInput
from tests.engine.null_executor import NullExecutor


class HeldExecutor(NullExecutor):
    """Computes a pass once `go` is set. Fails if `error` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.go = threading.Event()
        self.error: AiciError | None = None

    def begin(self, step: StepInput) -> Any:
        assert self.go.wait(10)
        if self.error is not None:
            raise self.error
        return ComputedStep(super().begin(step).logits(), None)


def one_step(pages: list[PageId]) -> StepInput:
    return StepInput([Chunk(SeqId(1), [TokenId(72)], 0, pages, num_logits=1)])


def test_the_cache_may_change_page_tables_during_the_pass() -> None:
    executor, ended, pages = HeldExecutor(), threading.Event(), [PageId(3)]
    passes = PassThread(executor, ended.set)
    pending = passes.begin(one_step(pages))
    pages.clear()
    assert not pending.is_over()
    executor.go.set()
    assert len(pending.logits()) == 1
    assert pending.is_over()
    assert ended.wait(10)
    assert executor.pages[3][0] == 72
    passes.close()


def test_an_error_is_raised_where_the_logits_are_read() -> None:
    executor, ended = HeldExecutor(), threading.Event()
    executor.error = AiciError("no memory")
    executor.go.set()
    passes = PassThread(executor, ended.set)
    pending = passes.begin(one_step([PageId(3)]))
    with pytest.raises(AiciError, match="no memory"):
        pending.logits()
    assert ended.wait(10)
    passes.close()


def test_close_waits_for_the_pass() -> None:
    executor = HeldExecutor()
    passes = PassThread(executor, lambda: None)
    pending = passes.begin(one_step([PageId(3)]))
    threading.Timer(0.02, executor.go.set).start()
    passes.close()
    assert pending.is_over()
