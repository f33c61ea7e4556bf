"""The steps from a row of logits to a token: penalties, temperature, top-k, top-p, min-p, one draw.

A token depends on its own row alone, not on the rest of the batch. The definitions follow transformers' logits
processors, except that top-k keeps all ties at its edge.
"""

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from aici_base.ids import TokenId
from aici_engine.config import SamplingParams

Logits = npt.NDArray[np.float32]
Ids = npt.NDArray[np.intp]
Choose = Callable[[Logits, SamplingParams, int], TokenId]
NOTHING_ALLOWED = "no token is allowed"
NOT_FINITE = "the model's logits are not finite"
_LARGEST = np.finfo(np.float32).max
_HEADS = (1e-2, 1e-4)
"""Top-p mostly needs only tokens at least this likely relative to the likeliest token: no sort of the vocabulary."""
_GROUPS = 8
"""Groups for every token of top-k. With 8, an eighth of the k likeliest tokens shares a group with a likelier token,
and the bound lets in few tokens beyond the k."""


def penalize(row: Logits, params: SamplingParams, *, prompt: Sequence[TokenId], output: Sequence[TokenId]) -> None:
    """Apply the penalties to `row` in place. Repetition counts prompt and output; presence and frequency the output
    only."""
    if params.repetition_penalty != 1.0:
        # A token may stand in `seen` more than once, so all values are read before any is written.
        seen = np.fromiter([*prompt, *output], np.intp, len(prompt) + len(output))
        values = row[seen].astype(np.float64)
        with np.errstate(over="ignore"):  # a tiny penalty would make a logit infinite
            values = np.where(values > 0, values / params.repetition_penalty, values * params.repetition_penalty)
            row[seen] = np.minimum(values, _LARGEST)
    if (params.presence_penalty or params.frequency_penalty) and output:
        seen, counts = np.unique(np.array(output, np.intp), return_counts=True)
        row[seen] -= (params.presence_penalty + params.frequency_penalty * counts).astype(np.float32)


def choose(row: Logits, params: SamplingParams, draw: int) -> TokenId:
    """Return the token picked by the random number `draw` (64 bits); every token is picked with its probability.

    Candidates race. A candidate has an exponential waiting time with its probability as the rate, and the first arrival
    wins. The waiting time depends on `draw` and the token alone, so rounding errors of a different batch change the
    outcome only if the first two candidates arrive together. With a draw from the cumulative distribution, rounding
    errors would shift the outcome for the whole vocabulary.

    Raises ValueError for a row without a finite logit, or with a NaN.
    """
    top = row.max()
    if not np.isfinite(top):
        raise ValueError(NOTHING_ALLOWED if top == -np.inf else NOT_FINITE)
    if params.greedy:
        return TokenId(int(row.argmax()))
    ids = top_k(row, params.top_k)
    # Differences first, then the temperature: a small one would overflow the logits themselves.
    exact = np.dtype(np.float64 if params.top_p < 1.0 or params.min_p > 0.0 else np.float32)  # sums and edges need it
    weights = np.exp((row[ids].astype(exact) - top) / exact.type(params.temperature))
    if params.top_p < 1.0:
        keep = _top_p(weights, params.top_p)
        ids, weights = ids[keep], weights[keep]
    if params.min_p > 0.0:
        keep = np.flatnonzero(weights >= params.min_p * weights.max())
        ids, weights = ids[keep], weights[keep]
    with np.errstate(divide="ignore", over="ignore"):  # a weight of 0 never arrives
        return TokenId(int(ids[(_exponentials(draw, ids) / weights.astype(np.float32)).argmin()]))


def _exponentials(draw: int, ids: Ids) -> npt.NDArray[np.float32]:
    """Return exponential variates with mean 1, from hashes of the ids (murmur3's finalizer, with better constants)."""
    bits = ids.astype(np.uint32)
    bits *= np.uint32(0x9E3779B9)
    bits += np.uint32(draw & 0xFFFFFFFF)
    bits ^= bits >> np.uint32(16)
    bits *= np.uint32(0x7FEB352D)
    bits ^= np.uint32(draw >> 32)
    bits ^= bits >> np.uint32(15)
    bits *= np.uint32(0x846CA68B)
    bits ^= bits >> np.uint32(16)
    uniform = bits.astype(np.float32)
    uniform += np.float32(0.5)
    # The result is above -1. Early arrivals matter, and floats are dense near 0.
    uniform *= np.float32((2.0**-24 - 1) * 2.0**-32)
    return -np.log1p(uniform)


def top_k(row: Logits, k: int) -> Ids:
    """Return the ids of the k likeliest allowed tokens, ascending, and of all ties at the edge. k = 0: all allowed
    tokens."""
    if k <= 0 or k >= len(row):
        return np.flatnonzero(row > -np.inf)
    least = _at_most_kth(row, k)
    ids = np.flatnonzero(row >= least if least > -np.inf else row > -np.inf)
    if len(ids) > k:
        values = row[ids]
        ids = ids[values >= _kth(values, k)]
    return ids


def _at_most_kth(row: Logits, k: int) -> np.float32:
    """Return a number not above the k-th largest logit, close enough to leave few candidates.

    The row is cut into groups. The k-th largest maximum of the groups is such a number.
    """
    num_groups = _GROUPS * k
    size = len(row) // num_groups
    return _kth(row[: size * num_groups].reshape(size, num_groups).max(axis=0), k) if size > 1 else np.float32(-np.inf)


def _kth(values: Logits, k: int) -> np.float32:
    """Return the k-th largest value."""
    kth: np.float32 = np.partition(values, len(values) - k)[len(values) - k]
    return kth


def _top_p(weights: npt.NDArray[np.float64], top_p: float) -> Ids:
    """Return the indices, ascending, of the smallest set of likeliest candidates with `top_p` of the weight."""
    wanted = top_p * weights.sum()
    head = np.arange(len(weights))
    for least in _HEADS:
        some = np.flatnonzero(weights >= least)
        if weights[some].sum() >= wanted:
            head = some
            break
    likeliest = head[np.argsort(-weights[head], kind="stable")]
    before = weights[likeliest].cumsum() - weights[likeliest]
    return np.sort(likeliest[before < wanted])
