"""One vector of a prompt: the pooled final states of its tokens."""

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from aici_engine.pooling_kinds import Pooling

FinalStates: TypeAlias = npt.NDArray[np.float32]
"""(S, hidden_size): hidden states after the final norm, the input of the head.

All states of a model may have a positive factor in common: Granite's norm is packed with the scale of the logits."""


class PromptPooling:
    """Pools the states of a prompt of `prompt_len` tokens, which are computed in chunks.

    The vector depends on the states alone, to the last bit, and not on the chunks.
    """

    def __init__(self, pooling: Pooling, prompt_len: int) -> None:
        self._takes_all = pooling == "mean"
        self._prompt_len = prompt_len
        self._num_pooled = 0
        self._sum: npt.NDArray[np.float64] | None = None

    @property
    def num_reusable(self) -> int:
        """Tokens at the beginning whose states are not needed (any more). The last token is never among them."""
        return min(self._num_pooled, self._prompt_len - 1) if self._takes_all else self._prompt_len - 1

    def num_states(self, end: int) -> int:
        """Return how many states, of the last tokens of a chunk up to position `end`, are needed."""
        return max(0, end - self._num_pooled) if self._takes_all else int(end == self._prompt_len)

    def add(self, states: FinalStates) -> None:
        """Take the states that `num_states` asked for."""
        # Row by row in 64 bits, so that the split into chunks does not change the sum.
        rows = states.astype(np.float64) if self._sum is None else np.vstack([self._sum, states])
        if len(rows):
            self._sum = np.add.accumulate(rows)[-1]
            self._num_pooled += len(states)

    def vector(self) -> npt.NDArray[np.float32] | None:
        """Return the vector (hidden_size,), not normalized; None until all states were added."""
        wanted = self._prompt_len if self._takes_all else 1
        if self._sum is None or self._num_pooled < wanted:
            return None
        return (self._sum / self._num_pooled).astype(np.float32)
