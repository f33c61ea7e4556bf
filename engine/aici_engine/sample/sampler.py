"""A token for a row of logits: bias, mask, penalties, pipeline. Or an error, which ends the sequence."""

from collections.abc import Callable, Iterable
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from aici_base.errors import AiciError, ControllerError
from aici_base.ids import TokenId
from aici_engine.arrays import Array
from aici_engine.events import TokenScore
from aici_engine.sample.bans import ban
from aici_engine.sample.explain import explain
from aici_engine.sample.logprobs import LogSoftmax, log_softmax, score
from aici_engine.sample.masks import Logits, MaskApplier
from aici_engine.sample.pipeline import NOTHING_ALLOWED, Choose, choose, penalize
from aici_engine.sample.rows import ChooseRows, RowToChoose
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

    def sample_batch(
        self, wanted: Seq[RowToSample[Row]], launched: Callable[[Any], None] | None = None
    ) -> list[TokenScore | AiciError]:
        """Return a token for every row, or an error if no token can be chosen. The rows are overwritten.

        `launched`: called by a sampler on a device that has been told to choose all tokens, before the wait for them.
        """


class HostSampler(Sampler[Logits]):
    """Draws one random number per sampled token from the sequence's own generator, so a seed fixes the text."""

    def __init__(
        self,
        masks: MaskApplier,
        choose: Choose = choose,
        log_softmax: LogSoftmax = log_softmax,
        choose_rows: ChooseRows | None = None,
    ) -> None:
        self._masks = masks
        self._choose_rows = choose_rows
        self._choose = choose
        self._log_softmax = log_softmax

    def rows(self, logits: Array) -> Iterable[Logits]:
        rows: Logits = np.asarray(logits)  # a tensor shares its memory
        return iter(rows)

    def score(self, seq: Sequence, rows: Seq[Logits]) -> None:
        score(seq, rows, self._log_softmax)

    def sample_batch(
        self,
        wanted: Seq[RowToSample[Logits]],
        launched: Callable[[Any], None] | None = None,  # noqa: ARG002 the tokens are chosen at once
    ) -> list[TokenScore | AiciError]:
        if self._choose_rows is None:
            return [self._try(each.seq, _own_row(each), each.bits) for each in wanted]
        simple = [each for each in wanted if _is_simple(each.seq)]
        tokens = iter(self._choose_rows([_row_to_choose(each) for each in simple], self._masks))
        return [
            _scored(next(tokens), has_mask=each.bits is not None)
            if _is_simple(each.seq)
            else self._try(each.seq, _own_row(each), each.bits)
            for each in wanted
        ]

    def _try(self, seq: Sequence, row: Logits, bits: npt.NDArray[np.uint8] | None) -> TokenScore | AiciError:
        try:
            return self.sample(seq, row, bits)
        except AiciError as error:
            return error

    def sample(self, seq: Sequence, row: Logits, bits: npt.NDArray[np.uint8] | None) -> TokenScore:
        """Return a token of `row`, which is overwritten. `bits`: the guest's mask, or `None`.

        Raises AiciError if no token can be chosen: ControllerError if the mask allows none.
        """
        _add_bias(seq, row)
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
            raise _error(error, has_mask=bits is not None) from error
        score = TokenScore(token)
        if seq.sampling.logprobs is not None:
            score = self._log_softmax(unpenalized, token, seq.sampling.logprobs)
        if unmasked is not None:
            score = score._replace(explanation=explain(unmasked, unpenalized, token, seq.sampling.explain or 0))
        return score


def _own_row(wanted: RowToSample[Logits]) -> Logits:
    return wanted.row.copy() if wanted.shared else wanted.row


def _add_bias(seq: Sequence, row: Logits) -> None:
    if seq.sampler.bias is not None:
        ids, biases = seq.sampler.bias
        row[ids] += biases


def _is_simple(seq: Sequence) -> bool:
    """Return whether nothing but the bias, the mask and the pipeline makes the token."""
    sampling = seq.sampling
    return sampling.logprobs is None and sampling.explain is None and not (sampling.bans or sampling.penalizes)


def _row_to_choose(wanted: RowToSample[Logits]) -> RowToChoose:
    sampling = wanted.seq.sampling
    draw = 0 if sampling.greedy else wanted.seq.sampler.random.getrandbits(64)
    row = _own_row(wanted)
    _add_bias(wanted.seq, row)
    return RowToChoose(row, wanted.bits, sampling, draw)


def _scored(token: TokenId | ValueError, *, has_mask: bool) -> TokenScore | AiciError:
    return _error(token, has_mask=has_mask) if isinstance(token, ValueError) else TokenScore(token)


def _error(error: ValueError, *, has_mask: bool) -> AiciError:
    if has_mask and str(error) == NOTHING_ALLOWED:
        return ControllerError("the controller's mask allows no token")
    return AiciError(str(error))
