"""The executor of a model in this process."""

from collections.abc import Callable

from aici_engine.arrays import Array
from aici_engine.executor import Executor, StateLostError
from aici_engine.model.interface import Model
from aici_engine.step_input import StepInput


class ComputedStep:
    """A forward pass that is over, or whose numbers a GPU still computes."""

    def __init__(self, logits: Array) -> None:
        self._logits = logits

    def logits(self) -> Array:
        return self._logits


class LocalExecutor(Executor):
    """Runs `model` on the calling thread, with one step in flight."""

    depth = 1

    def __init__(self, model: Model, *, num_pages: int, page_size: int) -> None:
        self.vocab_size = model.vocab_size
        self.context = model.context
        self.eos_tokens = model.eos_tokens
        self.num_pages = num_pages
        self.page_size = page_size
        self.device = str(model.device)
        self._model = model
        self._storage = model.make_storage(num_pages=num_pages, page_size=page_size)

    def begin(self, step: StepInput) -> ComputedStep:
        for copy in step.copies:
            self._storage.copy_page(*copy)
        return ComputedStep(self._model.forward(self._storage, step.chunks))

    def watch(self, on_lost: Callable[[StateLostError], None]) -> None:
        """A model in this process never loses its state."""

    def restore(self, wait_s: float) -> bool:  # noqa: ARG002 nothing to wait for
        return True

    def close(self) -> None: ...
