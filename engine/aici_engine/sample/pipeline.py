"""The steps from a row of logits to a token: penalties, temperature, top-k, top-p, min-p, one draw.

A row is all there is: nothing here depends on what else is in the batch, so neither does the token. The definitions are
those of transformers' logits processors; ties at the edge of top-k are all kept.
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
_HEADS = (1e-2, 1e-4)
"""Sorting the vocabulary is what top-p costs. Those at least this likely, against the likeliest, mostly suffice."""
_GROUPS = 8
"""For each of the k likeliest: one in eight of them shares a group with a likelier one, and few others are let in."""


def penalize(row: Logits, params: SamplingParams, *, prompt: Sequence[TokenId], output: Sequence[TokenId]) -> None:
    """In place. Repetition counts the prompt too; presence and frequency only the output."""
    if params.repetition_penalty != 1.0:
        # Some of them more than once: all are read before one is written.
        seen = np.fromiter([*prompt, *output], np.intp, len(prompt) + len(output))
        values = row[seen]
        row[seen] = np.where(values > 0, values / params.repetition_penalty, values * params.repetition_penalty)
    if (params.presence_penalty or params.frequency_penalty) and output:
        seen, counts = np.unique(np.array(output, np.intp), return_counts=True)
        row[seen] -= (params.presence_penalty + params.frequency_penalty * counts).astype(np.float32)


def choose(row: Logits, params: SamplingParams, draw: int) -> TokenId:
    """The token that the random number `draw` (64 bits) picks, each candidate as often as its probability says.

    Candidates race: each has an exponential waiting time with its probability as the rate, and the first one wins. A
    token's luck depends on `draw` and on itself alone, so rounding errors of another batch change the outcome only if
    the first two arrive together; a draw from the cumulative distribution they would shift for the whole vocabulary.

    ValueError if the row has no finite logit or a NaN.
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
    with np.errstate(divide="ignore", over="ignore"):  # who is that unlikely arrives never
        return TokenId(int(ids[(_exponentials(draw, ids) / weights.astype(np.float32)).argmin()]))


def _exponentials(draw: int, ids: Ids) -> npt.NDArray[np.float32]:
    """Exponential variates with mean 1, by a hash of each id (the finalizer of murmur3, with better constants)."""
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
    # Above -1. The early ones count, and near 0 the numbers are dense.
    uniform *= np.float32((2.0**-24 - 1) * 2.0**-32)
    return -np.log1p(uniform)


def top_k(row: Logits, k: int) -> Ids:
    """Ascending. More than k if there are equals at the edge, fewer if fewer are allowed; all that are if k is 0."""
    if k <= 0 or k >= len(row):
        return np.flatnonzero(row > -np.inf)
    least = _at_most_kth(row, k)
    ids = np.flatnonzero(row >= least if least > -np.inf else row > -np.inf)
    if len(ids) > k:
        values = row[ids]
        ids = ids[values >= _kth(values, k)]
    return ids


def _at_most_kth(row: Logits, k: int) -> np.float32:
    """A bound that leaves few candidates: cut into groups, `k` of them have a maximum as large as that of the k-th."""
    num_groups = _GROUPS * k
    size = len(row) // num_groups
    return _kth(row[: size * num_groups].reshape(size, num_groups).max(axis=0), k) if size > 1 else np.float32(-np.inf)


def _kth(values: Logits, k: int) -> np.float32:
    """The k-th largest."""
    kth: np.float32 = np.partition(values, len(values) - k)[len(values) - k]
    return kth


def _top_p(weights: npt.NDArray[np.float64], top_p: float) -> Ids:
    """Indices, ascending, of the fewest likeliest candidates that together have `top_p` of the weight."""
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
