"""One epoch of a pipeline at one stage: the keys and values, the page tables, and the number of the next step."""

import logging
import time

import msgspec
import numpy as np

from aici_engine.arrays import Array, bytes_of
from aici_engine.cluster.frames import Attach, Buffer, FrameError, StepFrame, StepLimits, check_step
from aici_engine.cluster.page_changes import PageTableMirror
from aici_engine.failure import Failure
from aici_engine.model.stage_model import StageModel
from aici_engine.step_input import StepInput

_NO_BYTES = memoryview(b"")
_LONGEST_US = (1 << 31) - 1

_log = logging.getLogger(__name__)


class StageEpoch:
    """Computes the steps of an epoch, in the order of their numbers. Begins with an empty cache of keys and values."""

    def __init__(self, model: StageModel, attach: Attach) -> None:
        self.attach = attach
        self.num_steps = 0
        self._model = model
        self._storage = model.make_storage(num_pages=attach.num_pages, page_size=attach.page_size)
        self._mirror = PageTableMirror()
        self._idle_since = time.perf_counter()
        reads_ids = model.part.embedding
        self._limits = StepLimits(
            num_pages=attach.num_pages,
            page_size=attach.page_size,
            num_stages=attach.num_stages,
            max_batch_tokens=attach.max_batch_tokens,
            max_context=attach.max_context,
            token_bytes=4 if reads_ids else model.hidden_size * model.states_dtype.itemsize,
            vocab_size=model.vocab_size if reads_ids else None,
        )

    @property
    def max_body_bytes(self) -> int:
        """The longest body of a step in this epoch."""
        return self._limits.max_body_bytes

    def step(self, step: StepFrame, body: Buffer) -> tuple[StepFrame, memoryview]:
        """Compute a step. Return the header and the body for the next stage; the next step overwrites the body.

        A failure of the model is a failure of the step, and not of the epoch. Raises FrameError for a step that does
        not follow the one before, or that is out of bounds.
        """
        began = time.perf_counter()
        if (step.epoch, step.number) != (self.attach.epoch, self.num_steps + 1):
            raise FrameError(
                f"step {step.number} of epoch {step.epoch} came after step {self.num_steps} of {self.attach.epoch}"
            )
        check_step(step, body, self._limits, self._mirror.num_held)
        self.num_steps = step.number
        reads_ids = self._model.part.embedding and step.failure is None
        ids = np.frombuffer(body, np.int32).tolist() if reads_ids else None
        planned = self._mirror.apply(step, ids)
        for copy in planned.copies:
            self._storage.copy_page(*copy)
        states, failure = _NO_BYTES, step.failure
        if failure is None:
            try:
                states = self._run(planned, body)
            except Exception as error:  # noqa: BLE001 the engine loop's: a failure costs the requests of this step
                _log.exception("step %d failed", step.number)
                failure = Failure.of(error)
        ended = time.perf_counter()
        times = (self.attach.stage, _microseconds(began - self._idle_since), _microseconds(ended - began))
        self._idle_since = ended
        return msgspec.structs.replace(step, times=[*step.times, times], failure=failure), states

    def _run(self, step: StepInput, body: Buffer) -> memoryview:
        model = self._model
        before = None
        if not model.part.embedding:
            before = states_of(body, model)
        states = model.run(self._storage, step.chunks, before)
        if self.attach.rows_only:
            states = rows_with_logits(states, step)
        return bytes_of(states)


def rows_with_logits(states: Array, step: StepInput) -> Array:
    """Return the rows (R, hidden_size) of `states` (T, hidden_size) whose tokens have logits."""
    rows: list[int] = []
    end = 0
    for chunk in step.chunks:
        end += len(chunk.tokens)
        rows.extend(range(end - chunk.num_logits, end))
    return states if len(rows) == len(states) else states[rows]


def states_of(body: Buffer, model: StageModel) -> Array:
    """Return the states (T, hidden_size) in the body of a step, without a copy."""
    kind = model.states_dtype
    if isinstance(kind, np.dtype):
        return np.frombuffer(body, kind).reshape(-1, model.hidden_size)
    import torch

    if not len(body):
        return torch.empty(0, model.hidden_size, dtype=kind)
    return torch.frombuffer(body, dtype=kind).view(-1, model.hidden_size)


def _microseconds(seconds: float) -> int:
    return min(round(seconds * 1e6), _LONGEST_US)
