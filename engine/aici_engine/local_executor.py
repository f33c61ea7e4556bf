"""The executor of a model in this process."""

from collections.abc import Callable, Sequence

import numpy as np

from aici_engine.arrays import Array
from aici_engine.cache.ids import PageId
from aici_engine.draft_model import PagedDraftModel
from aici_engine.executor import Executor, PendingStep, StateLostError
from aici_engine.model.interface import Model
from aici_engine.pooling import FinalStates
from aici_engine.step_input import StepInput


class ComputedStep(PendingStep):
    """A forward pass that is over, or whose numbers a GPU still computes."""

    def __init__(self, logits: Array, states: FinalStates | None) -> None:
        self._logits = logits
        self.given_states = states

    def logits(self) -> Array:
        return self._logits

    def states(self) -> FinalStates:
        assert self.given_states is not None, "no chunk of the step wants states"
        return self.given_states


class LocalExecutor(Executor):
    """Runs `model` on the calling thread, with one step in flight. `draft_model` guesses tokens between the steps."""

    depth = 1

    def __init__(
        self, model: Model, *, num_pages: int, page_size: int, draft_model: PagedDraftModel | None = None
    ) -> None:
        self.vocab_size = model.vocab_size
        self.context = model.context
        self.eos_tokens = model.eos_tokens
        self.num_pages = num_pages
        self.page_size = page_size
        self.device = str(model.device)
        self.states_size = model.states_size
        self.same_bits = model.same_bits
        self.computes_in_c = model.same_bits  # by the kernels
        self.memory_bytes = model.weight_bytes + num_pages * page_size * model.token_bytes
        if draft_model is not None:
            self.memory_bytes += draft_model.memory_bytes
        self.draft_model = draft_model
        self._model = model
        self._storage = model.make_storage(num_pages=num_pages, page_size=page_size)

    def begin(self, step: StepInput) -> ComputedStep:
        self._copy(step)
        num_states = sum(chunk.num_states for chunk in step.chunks)
        states = np.empty((num_states, self.states_size), np.float32) if num_states else None
        return ComputedStep(self._model.forward(self._storage, step.chunks, states), states)

    def _copy(self, step: StepInput) -> None:
        for copy in step.copies:
            self._storage.copy_page(*copy)

    def watch(self, on_lost: Callable[[StateLostError], None]) -> None:
        """A model in this process never loses its state."""

    def restore(self, wait_s: float) -> bool:  # noqa: ARG002 nothing to wait for
        return True

    def discard(self, pages: Sequence[PageId]) -> None:
        if self.device == "cpu":
            self._storage.discard(pages)
            if self.draft_model is not None:
                self.draft_model.discard(pages)

    def close(self) -> None: ...
