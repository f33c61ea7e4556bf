"""One token for one row of logits: bias, mask, penalties, pipeline; or the end of the sequence, and why."""

from collections.abc import Iterable
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import torch

from aici_base.errors import AiciError, ControllerError
from aici_engine.events import TokenScore
from aici_engine.sample.logprobs import LogSoftmax, log_softmax, score
from aici_engine.sample.masks import Logits, MaskApplier
from aici_engine.sample.pipeline import NOTHING_ALLOWED, Choose, choose, penalize
from aici_engine.sequences.sequence import Sequence

Row = TypeVar("Row")


@dataclass(slots=True)
class RowToSample(Generic[Row]):
    """A token for `seq`. `bits`: the guest's mask, None without one. `shared`: others want one of the same row."""

    seq: Sequence
    row: Row
    bits: npt.NDArray[np.uint8] | None
    shared: bool = False


class Sampler(Protocol[Row]):
    """Knows where a step's logits are; who asks it does not."""

    def rows(self, logits: torch.Tensor) -> Iterable[Row]:
        """Of (R, vocabulary) as the model gives them."""

    def score(self, seq: Sequence, rows: Seq[Row]) -> None:
        """So much more of its prompt is scored: `rows` are what `num_rows` asked for. AiciError if that cannot be."""

    def sample_batch(self, wanted: Seq[RowToSample[Row]]) -> list[TokenScore | AiciError]:
        """Rows are spoilt. An error where there is nothing to choose."""


class HostSampler(Sampler[Logits]):
    """BatchParams one random number per sampled token from the sequence's own generator, so a seed fixes the text."""

    def __init__(self, masks: MaskApplier, choose: Choose = choose, log_softmax: LogSoftmax = log_softmax) -> None:
        self._masks = masks
        self._choose = choose
        self._log_softmax = log_softmax

    def rows(self, logits: torch.Tensor) -> Iterable[Logits]:
        rows: Logits = logits.numpy()
        return iter(rows)

    def score(self, seq: Sequence, rows: Seq[Logits]) -> None:
        score(seq, rows, self._log_softmax)

    def sample_batch(self, wanted: Seq[RowToSample[Logits]]) -> list[TokenScore | AiciError]:
        return [self._try(each.seq, each.row.copy() if each.shared else each.row, each.bits) for each in wanted]

    def _try(self, seq: Sequence, row: Logits, bits: npt.NDArray[np.uint8] | None) -> TokenScore | AiciError:
        try:
            return self.sample(seq, row, bits)
        except AiciError as error:
            return error

    def sample(self, seq: Sequence, row: Logits, bits: npt.NDArray[np.uint8] | None) -> TokenScore:
        """`row` is spoilt. `bits`: the guest's mask, None without one. AiciError if there is nothing to choose."""
        if seq.sampler.bias is not None:
            ids, biases = seq.sampler.bias
            row[ids] += biases
        if bits is not None:
            self._masks.apply(bits, row)
        unpenalized = row
        if seq.sampling.penalizes:
            unpenalized = row.copy()
            prompt_len = seq.transcript.prompt_len
            prompt, output = seq.tokens[:prompt_len], seq.tokens[prompt_len:]
            penalize(row, seq.sampling, prompt=prompt, output=output)
        draw = 0 if seq.sampling.greedy else seq.sampler.random.getrandbits(64)
        try:
            token = self._choose(row, seq.sampling, draw)
        except ValueError as error:
            if bits is not None and str(error) == NOTHING_ALLOWED:
                raise ControllerError("the controller's mask allows no token") from error
            raise AiciError(str(error)) from error
        if seq.sampling.logprobs is None:
            return TokenScore(token)
        return self._log_softmax(unpenalized, token, seq.sampling.logprobs)
