"""Masks and the pipeline in torch, for many rows at once, on any device.

The tokens equal those of `masks` and `pipeline` up to rounding. No call waits for the device.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import torch

from aici_base.ids import TokenId
from aici_engine.config import SamplingParams
from aici_engine.device_copy import copy_to_device

NOTHING_ALLOWED, NOT_FINITE = -1, -2
"""Returned in place of a token."""
_WORD = 0xFFFFFFFF
_ARRIVALS = float(np.float32((2.0**-24 - 1) * 2.0**-32))


class TensorMasks:
    """Does as `MaskApplier`, for many rows.

    Every logit has a place among the bits: its own, or for other EOS tokens the place of the EOS that guests know. With
    a table of places, a compiler can read the bits where it reads the logits, without a tensor of masks between.
    """

    def __init__(
        self, *, vocab_size: int, eos_token: TokenId, all_eos: Iterable[TokenId], num_logits: int, device: torch.device
    ) -> None:
        num_described = min(vocab_size, num_logits)
        places = torch.arange(num_logits, dtype=torch.int32)
        described = places < num_described
        for token in all_eos:
            if token != eos_token and token < num_logits:
                places[token] = eos_token
                described[token] = eos_token < num_described
        places = places.where(described, 0)
        self._bytes = (places >> 3).to(device)
        self._shifts = (places & 7).to(torch.uint8).to(device)
        self._described = described.to(device)

    def is_open(self, bits: torch.Tensor) -> torch.Tensor:
        """Return (R, logits) of bool, True for open tokens, from masks `bits` (R, bytes) of u8."""
        return (bits[:, self._bytes] >> self._shifts & 1).bool() & self._described


class BatchParams(NamedTuple):
    """The sampling parameters of R rows: `numbers` (6, R, 1) in f64.

    The six are temperature, top-k, top-p, min-p, and the lower and upper half of a random number. `max_k` 0: no row
    uses top-k. `has_top_p`: a row uses top-p. `is_greedy`: all rows are greedy.
    """

    numbers: torch.Tensor
    max_k: int
    has_top_p: bool
    is_greedy: bool

    @staticmethod
    def of(
        params: Sequence[SamplingParams], draws: Sequence[int], *, num_logits: int, device: torch.device
    ) -> "BatchParams":
        """Return the parameters on `device`. `draws`: a random number of 64 bits a row."""
        ks = [0 if each.greedy or not 0 < each.top_k < num_logits else each.top_k for each in params]
        columns = (
            [0.0 if each.greedy else each.temperature for each in params],
            ks,
            [each.top_p for each in params],
            [each.min_p for each in params],
            [draw & _WORD for draw in draws],
            [draw >> 32 for draw in draws],
        )
        return BatchParams(
            copy_to_device(np.array(columns, np.float64)[:, :, None], device),
            max_k=max(ks),
            has_top_p=any(each.top_p < 1.0 and not each.greedy for each in params),
            is_greedy=all(each.greedy for each in params),
        )


def choose_allowed(
    rows: torch.Tensor,
    masks: TensorMasks,
    bits: torch.Tensor,
    mask_of: torch.Tensor,
    numbers: torch.Tensor,
    max_k: int,
    has_top_p: bool,
    is_greedy: bool,
) -> torch.Tensor:
    """Do as `choose`, with masks. `bits` (M, bytes) of u8; `mask_of` (R,): the mask of every row, -1 for none."""
    is_open = masks.is_open(bits)[mask_of.clamp(min=0)] | (mask_of < 0)[:, None]
    return choose(rows.masked_fill(~is_open, -torch.inf), numbers, max_k, has_top_p, is_greedy)


def choose(rows: torch.Tensor, numbers: torch.Tensor, max_k: int, has_top_p: bool, is_greedy: bool) -> torch.Tensor:
    """Return tokens (R,) for `rows` (R, logits) of f32; NOTHING_ALLOWED or NOT_FINITE for a row without a token.

    The other arguments are those of `BatchParams`.
    """
    top, tokens = rows.max(dim=1, keepdim=True)
    if not is_greedy:
        draws = BatchParams(numbers, max_k, has_top_p, is_greedy)
        tokens = torch.where(numbers[0] > 0, _race(rows, top, draws), tokens)
    tokens = tokens.masked_fill(~top.isfinite(), NOT_FINITE)
    return tokens.masked_fill(top == -torch.inf, NOTHING_ALLOWED)[:, 0]


def _race(rows: torch.Tensor, top: torch.Tensor, draws: BatchParams) -> torch.Tensor:
    """Return the winners (R, 1). Candidates stand in the order of the vocabulary, or likeliest first for top-p."""
    temperature, k, top_p, min_p, low, high = draws.numbers
    if draws.has_top_p:
        rows, ids = rows.sort(dim=1, descending=True, stable=True)
    else:
        ids = torch.arange(rows.shape[1], device=rows.device)[None]
    weights = torch.exp((rows - top) / temperature.float())
    if draws.max_k:
        likeliest = rows if draws.has_top_p else rows.topk(draws.max_k).values
        least = likeliest.gather(1, (k.long() - 1).clamp(min=0))
        weights = weights.where((rows >= least) | (k == 0), 0.0)
    if draws.has_top_p:
        sums = weights.cumsum(1, dtype=torch.float64)
        weights = weights.where((sums - weights < top_p * sums[:, -1:]) | (top_p == 1.0), 0.0)
    weights = weights.where(weights >= min_p.float(), 0.0)
    first = (_exponentials(ids, low.long(), high.long()) / weights).argmin(dim=1, keepdim=True)
    return ids.expand_as(rows).gather(1, first)


def _exponentials(ids: torch.Tensor, low: torch.Tensor, high: torch.Tensor) -> torch.Tensor:
    """Return the variates of `pipeline._exponentials`, computed in the lower half of 64 bits.

    A factor beyond 2 ** 31 is reduced by 2 ** 32, so no product overflows.
    """
    bits = ids * (0x9E3779B9 - (1 << 32)) + low & _WORD
    bits = ((bits ^ bits >> 16) * 0x7FEB352D & _WORD) ^ high
    bits = (bits ^ bits >> 15) * (0x846CA68B - (1 << 32)) & _WORD
    uniform = ((bits ^ bits >> 16).float() + 0.5) * _ARRIVALS
    return -torch.log1p(uniform)
