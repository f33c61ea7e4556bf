"""A guest's mask, in bits, applied to a row of logits."""

from collections.abc import Callable, Iterable

import numpy as np
import numpy.typing as npt

from aici_base.ids import TokenId

Logits = npt.NDArray[np.float32]


Bits = npt.NDArray[np.uint8]
MaskRow = Callable[[Logits, Bits, int], None]


class TableMask:
    """Set the first `num_tokens` logits of a row to -inf where the bit is 0.

    A table from byte to eight biases turns bits into numbers with one look-up a byte, 20 µs for 49k tokens. Rows are
    masked one by one, so the buffer stays in the processor's cache.
    """

    def __init__(self) -> None:
        bits = (np.arange(256)[:, None] >> np.arange(8)) & 1
        self._table = np.where(bits == 1, np.float32(0), np.float32(-np.inf))  # (256, 8)
        self._expanded = np.empty((0, 8), np.float32)

    def __call__(self, row: Logits, bits: Bits, num_tokens: int) -> None:
        if len(self._expanded) != len(bits):
            self._expanded = np.empty((len(bits), 8), np.float32)
        np.take(self._table, bits, axis=0, out=self._expanded, mode="clip")
        row[:num_tokens] += self._expanded.reshape(-1)[:num_tokens]


class MaskApplier:
    """Applies masks of one vocabulary. Guests know `eos_token`; its bit opens or closes all tokens of `all_eos`.

    The bits may describe fewer or more tokens than the model has logits. Tokens beyond the bits are closed.
    `eos_tokens`: all tokens that end a text. `other_eos`: the end tokens unknown to guests. `num_described`: the logits
    with a bit.
    """

    def __init__(
        self,
        *,
        vocab_size: int,
        eos_token: TokenId,
        all_eos: Iterable[TokenId],
        num_logits: int,
        close: MaskRow | None = None,
    ) -> None:
        self._close = close or TableMask()
        all_eos = tuple(all_eos)
        self.num_described = min(vocab_size, num_logits)
        self.eos = eos_token
        self.eos_tokens = tuple(token for token in sorted({eos_token, *all_eos}) if token < num_logits)
        self._other_eos = [token for token in all_eos if token != eos_token and token < num_logits]
        self.other_eos = np.array(self._other_eos, np.int64)

    def apply(self, bits: Bits, row: Logits) -> None:
        """Set the logits of closed tokens to -inf, in place."""
        end = self.num_described
        open_eos = self.eos < end and bool(bits[self.eos // 8] >> (self.eos % 8) & 1)
        kept = [(token, row[token]) for token in self._other_eos] if open_eos else []
        self._close(row, bits, end)
        row[end:] = -np.inf
        for token in self._other_eos:
            row[token] = -np.inf
        for token, logit in kept:
            row[token] = logit
