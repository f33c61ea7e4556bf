"""One token for one row of logits: mask, penalties, pipeline; or the end of the sequence, and why."""

import numpy as np
import numpy.typing as npt

from aici_engine.sample.masks import Logits, MaskApplier
from aici_engine.sample.pipeline import choose, penalize
from aici_engine.sequence import Sequence
from aici_runtime.errors import AiciError, ControllerError
from aici_runtime.ids import TokenId


class Sampler:
    """Draws one random number per sampled token from the sequence's own generator, so a seed fixes the text."""

    def __init__(self, masks: MaskApplier) -> None:
        self._masks = masks

    def sample(self, seq: Sequence, row: Logits, bits: npt.NDArray[np.uint8] | None) -> TokenId:
        """`row` is spoilt. `bits`: the guest's mask, None without one. AiciError if there is nothing to choose."""
        if bits is not None and not self._masks.apply(bits, row):
            raise ControllerError("the controller's mask allows no token")
        prompt, output = seq.tokens[: seq.prompt_len], seq.tokens[seq.prompt_len :]
        penalize(row, seq.sampling, prompt=prompt, output=output)
        uniform = 0.0 if seq.sampling.greedy else seq.random.random()
        try:
            return choose(row, seq.sampling, uniform)
        except ValueError as error:
            raise AiciError(str(error)) from error
