"""The executor of a model on a GPU: a pass may begin before the host knows the tokens of the pass.

Between two passes, the host appends tokens, tells listeners and guests, and plans. A GPU would wait meanwhile. As soon
as the GPU has orders to choose tokens, `go_ahead` therefore begins the likely next pass: one more token of each
sequence, read from the memory of the GPU. `begin` compares the planned step with the guessed pass, takes the rows of
right guesses, and computes the other rows. A wrong guess costs time and changes no text: the guessed pass has written
keys and values of pending tokens alone, and `begin` writes these again.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch

from aici_base.ids import SeqId
from aici_engine.cache.ids import PageId
from aici_engine.cache.storage import KVStorage
from aici_engine.device_copy import copy_to_device
from aici_engine.local_executor import ComputedStep, LocalExecutor
from aici_engine.model.interface import Model
from aici_engine.sample.device_sampler import LaunchedTokens
from aici_engine.step_input import Chunk, StepInput


class AheadModel(Model, Protocol):
    """A model that can read the tokens of a pass on its device."""

    def forward_ahead(self, storage: KVStorage, chunks: Sequence[Chunk], tokens: torch.Tensor) -> torch.Tensor:
        """Do as `forward` for chunks of one token with one row of logits each; token i is `tokens[i]`."""

    def warm_up(self, storage: KVStorage) -> None:
        """Run each kind of step once, in free pages, so that no request waits for the work of a first call."""


class _Guess(NamedTuple):
    """A token to compute: of which sequence, at which position, written to which page."""

    seq_id: SeqId
    start: int
    page: PageId


class _Ahead(NamedTuple):
    """A pass that was begun. `places`: the row of each guess, in `logits` and among `tokens`."""

    places: dict[_Guess, tuple[int, int]]
    tokens: LaunchedTokens
    logits: torch.Tensor


class AheadExecutor(LocalExecutor):
    """Runs `model` on the calling thread, which waits for nothing: the numbers come later."""

    goes_ahead = True

    def __init__(self, model: AheadModel, *, num_pages: int, page_size: int) -> None:
        super().__init__(model, num_pages=num_pages, page_size=page_size)
        model.warm_up(self._storage)
        self._ahead_model = model
        self._ahead: _Ahead | None = None

    def go_ahead(self, step: StepInput, tokens: LaunchedTokens, chosen: Sequence[int]) -> None:
        # The pass may overwrite the logits of the step before: whatever reads them was told to the device before.
        self._copy(step)
        wanted = _rows_of(tokens.on_device, chosen)
        # A negative number stands for no token, and its row will not be used.
        logits = self._ahead_model.forward_ahead(self._storage, step.chunks, wanted.clamp(min=0))
        guesses = {self._guess(chunk): (row, chosen[row]) for row, chunk in enumerate(step.chunks)}
        self._ahead = _Ahead(guesses, tokens, logits)
        self.num_guessed += len(guesses)

    def begin(self, step: StepInput) -> ComputedStep:
        ahead, self._ahead = self._ahead, None
        rows = {} if ahead is None else self._right_rows(ahead, step)
        self.num_right += len(rows)
        if ahead is None or not rows:
            return super().begin(step)
        if len(rows) == len(step.chunks):
            self._copy(step)
            return ComputedStep(_rows_of(ahead.logits, list(rows.values())), None)
        # Copied, because the pass of the others may use the memory of the logits.
        known = _rows_of(ahead.logits, list(rows.values())).clone()
        others = [chunk for place, chunk in enumerate(step.chunks) if place not in rows]
        computed = super().begin(step._replace(chunks=others))
        return ComputedStep(_merged(step.chunks, rows, known, computed.logits()), computed.given_states)

    def _right_rows(self, ahead: _Ahead, step: StepInput) -> dict[int, int]:
        """Return the rows of logits, by the place of the chunk in the step, for chunks that were guessed right."""
        found, tokens = {}, ahead.tokens.read()
        for place, chunk in enumerate(step.chunks):
            if len(chunk.tokens) == chunk.num_logits == 1 and not chunk.num_states:
                row, chosen = ahead.places.get(self._guess(chunk), (None, 0))
                if row is not None and tokens[chosen] == chunk.tokens[0]:
                    found[place] = row
        return found

    def _guess(self, chunk: Chunk) -> _Guess:
        return _Guess(chunk.seq_id, chunk.start, chunk.pages[chunk.start // self.page_size])


def _rows_of(tensor: torch.Tensor, rows: Sequence[int]) -> torch.Tensor:
    if rows == list(range(len(rows))):
        return tensor[: len(rows)]
    return tensor.index_select(0, copy_to_device(np.array(rows, np.int64), tensor.device))


def _merged(chunks: Sequence[Chunk], rows: dict[int, int], known: torch.Tensor, computed: Any) -> torch.Tensor:
    """Return the rows of all chunks in order: one of `known` for each chunk in `rows`, those of the rest in
    `computed`."""
    order, taken, given = [], 0, 0
    for place, chunk in enumerate(chunks):
        if place in rows:
            order.append(taken)
            taken += 1
        else:
            order += range(len(known) + given, len(known) + given + chunk.num_logits)
            given += chunk.num_logits
    return _rows_of(torch.cat([known, computed]), order)
