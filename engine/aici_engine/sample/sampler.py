"""A token for a row of logits: bias, mask, penalties, pipeline. Or an error, which ends the sequence."""

from collections.abc import Iterable
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from aici_base.errors import AiciError, ControllerError
from aici_engine.arrays import Array
from aici_engine.events import TokenScore
from aici_engine.sample.bans import ban
from aici_engine.sample.explain import explain
from aici_engine.sample.logprobs import LogSoftmax, log_softmax, score
from aici_engine.sample.masks import Logits, MaskApplier
from aici_engine.sample.pipeline import NOTHING_ALLOWED, Choose, choose, penalize
from aici_engine.sequences.sequence import Sequence

Row = TypeVar("Row")


@dataclass(slots=True)
class RowToSample(Generic[Row]):
    """A row to sample for `seq`. `bits`: the guest's mask, or `None`. `shared`: the row is sampled for forks too."""

    seq: Sequence
    row: Row
    bits: npt.NDArray[np.uint8] | None
    shared: bool = False


class Sampler(Protocol[Row]):
    """Samples tokens. `Row` is a row of logits where the sampler wants the row, in host memory or on a GPU."""

    def rows(self, logits: Array) -> Iterable[Row]:
        """Return the rows of a model's logits (R, vocabulary)."""

    def score(self, seq: Sequence, rows: Seq[Row]) -> None:
        """Score more tokens of the prompt, from the rows that `num_rows` asked for. Raises AiciError for bad logits."""

    def sample_batch(self, wanted: Seq[RowToSample[Row]]) -> list[TokenScore | AiciError]:
        """Return a token for every row, or an error if no token can be chosen. The rows are overwritten."""


class HostSampler(Sampler[Logits]):
    """Draws one random number per sampled token from the sequence's own generator, so a seed fixes the text."""

    def __init__(self, masks: MaskApplier, choose: Choose = choose, log_softmax: LogSoftmax = log_softmax) -> None:
        self._masks = masks
        self._choose = choose
        self._log_softmax = log_softmax

    def rows(self, logits: Array) -> Iterable[Logits]:
        rows: Logits = np.asarray(logits)  # a tensor shares its memory
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
        """Return a token of `row`, which is overwritten. `bits`: the guest's mask, or `None`.

        Raises AiciError if no token can be chosen: ControllerError if the mask allows none.
        """
        if seq.sampler.bias is not None:
            ids, biases = seq.sampler.bias
            row[ids] += biases
        unmasked = None if seq.sampling.explain is None else row.copy()
        if bits is not None:
            self._masks.apply(bits, row)
        if seq.sampling.bans:
            num_output = len(seq.tokens) - seq.transcript.prompt_len
            ban(row, seq.sampling, tokens=seq.tokens, num_output=num_output, eos_tokens=self._masks.eos_tokens)
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
        score = TokenScore(token)
        if seq.sampling.logprobs is not None:
            score = self._log_softmax(unpenalized, token, seq.sampling.logprobs)
        if unmasked is not None:
            score = score._replace(explanation=explain(unmasked, unpenalized, token, seq.sampling.explain or 0))
        return score
