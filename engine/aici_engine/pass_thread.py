"""Forward passes on a thread of their own: meanwhile, the engine's thread can talk to guests that start."""

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from aici_engine.arrays import Array
from aici_engine.executor import Executor, PendingStep
from aici_engine.pooling import FinalStates
from aici_engine.step_input import StepInput


class ThreadedStep(PendingStep):
    """A forward pass on the other thread."""

    def __init__(self) -> None:
        self.step: Future[PendingStep] = Future()
        self.ended_at = 0.0
        """By the monotonic clock, once `is_over`."""

    def is_over(self) -> bool:
        return self.step.done()

    def logits(self) -> Array:
        return self.step.result().logits()

    def states(self) -> FinalStates:
        return self.step.result().states()


class PassThread:
    """Used by the engine's thread alone. The thread starts with the first pass, and `close` ends the thread.

    `executor`: one whose `begin` may run on any thread. `on_end`: called on the other thread, after each pass.
    """

    def __init__(self, executor: Executor, on_end: Callable[[], None]) -> None:
        self._executor = executor
        self._on_end = on_end
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="aici-pass")

    def begin(self, step: StepInput) -> ThreadedStep:
        """Start a forward pass. No other pass may begin before its end. An error of the pass is raised by `logits`."""
        # The cache may change its page tables during the pass.
        chunks = [chunk._replace(pages=list(chunk.pages)) for chunk in step.chunks]
        pending = ThreadedStep()
        self._thread.submit(self._compute, step._replace(chunks=chunks), pending)
        return pending

    def close(self) -> None:
        """Wait for the pass, if any."""
        self._thread.shutdown()

    def _compute(self, step: StepInput, pending: ThreadedStep) -> None:
        try:
            computed = self._executor.begin(step)
        except BaseException as error:  # noqa: BLE001 raised again on the engine's thread
            pending.ended_at = time.monotonic()
            pending.step.set_exception(error)
        else:
            pending.ended_at = time.monotonic()
            pending.step.set_result(computed)
        self._on_end()
