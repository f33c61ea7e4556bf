"""A guest's mask in the form of vLLM."""

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from aici_base.ids import TokenId
from aici_engine.vllm.row_engine import Words


class EosWords:
    """Makes words of bits. Guests know `eos_token`; its bit opens or closes all tokens of `all_eos`.

    An `eos_token` outside of `all_eos` is closed: to vLLM, the token would be text.
    """

    def __init__(self, *, num_logits: int, eos_token: TokenId, all_eos: Iterable[TokenId]) -> None:
        self._num_words = -(-num_logits // 32)
        self._eos = eos_token
        self._others = np.zeros(self._num_words, np.int32)
        as_bytes = self._others.view(np.uint8)
        for token in all_eos:
            if token < num_logits:
                as_bytes[token // 8] |= np.uint8(1 << token % 8)
        self._kept = np.full(self._num_words, -1, np.int32)
        if eos_token < num_logits:
            self._kept.view(np.uint8)[eos_token // 8] ^= np.uint8(1 << eos_token % 8)

    def of(self, bits: npt.NDArray[np.uint8]) -> Words:
        """Return the mask `bits` (32 * k bits, least significant bit first) over all logits."""
        words = np.zeros(self._num_words, np.int32)
        given = bits.view(np.int32)[: self._num_words]
        words[: len(given)] = given
        words &= self._kept
        if bits[self._eos // 8] >> self._eos % 8 & 1:
            words |= self._others
        else:
            words &= ~self._others
        return words
