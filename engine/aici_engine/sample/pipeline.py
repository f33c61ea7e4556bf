"""The steps from a row of logits to a token: penalties, temperature, top-k, top-p, min-p, multinomial.

A row is all there is: nothing here depends on what else is in the batch, so neither does the token. The definitions are
those of transformers' logits processors; ties at the edge of top-k are all kept.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from aici_engine.config import SamplingParams
from aici_runtime.ids import TokenId

Logits = npt.NDArray[np.float32]
Ids = npt.NDArray[np.intp]
_HEADS = (1e-2, 1e-4)
"""Sorting the vocabulary is what top-p costs. Those at least this likely, against the likeliest, mostly suffice."""


def penalize(row: Logits, params: SamplingParams, *, prompt: Sequence[TokenId], output: Sequence[TokenId]) -> None:
    """In place. Repetition counts the prompt too; presence and frequency only the output."""
    if params.repetition_penalty != 1.0:
        seen = np.unique(np.array([*prompt, *output], np.intp))
        values = row[seen]
        row[seen] = np.where(values > 0, values / params.repetition_penalty, values * params.repetition_penalty)
    if (params.presence_penalty or params.frequency_penalty) and output:
        seen, counts = np.unique(np.array(output, np.intp), return_counts=True)
        row[seen] -= (params.presence_penalty + params.frequency_penalty * counts).astype(np.float32)


def choose(row: Logits, params: SamplingParams, uniform: float) -> TokenId:
    """The token at `uniform` (0 <= u < 1) of the cumulative distribution, candidates in the order of the vocabulary.

    ValueError if the row has no finite logit or a NaN.
    """
    top = row.max()
    if not np.isfinite(top):
        raise ValueError("the model's logits are not finite" if np.isnan(top) else "no token is allowed")
    if params.greedy:
        return TokenId(int(row.argmax()))
    ids = top_k(row, params.top_k)
    # Differences first, then the temperature: a small one would overflow the logits themselves.
    weights = np.exp((row[ids].astype(np.float64) - top) / params.temperature)
    if params.top_p < 1.0:
        keep = _top_p(weights, params.top_p)
        ids, weights = ids[keep], weights[keep]
    if params.min_p > 0.0:
        keep = np.flatnonzero(weights >= params.min_p * weights.max())
        ids, weights = ids[keep], weights[keep]
    cumulative = weights.cumsum()
    at = int(cumulative.searchsorted(uniform * cumulative[-1], side="right"))
    return TokenId(int(ids[min(at, len(ids) - 1)]))


def top_k(row: Logits, k: int) -> Ids:
    """Ascending. More than k if there are equals at the edge, fewer if fewer are allowed; all that are if k is 0."""
    if k <= 0 or k >= len(row):
        return np.flatnonzero(row > -np.inf)
    kth = np.partition(row, len(row) - k)[len(row) - k]
    return np.flatnonzero(row >= kth) if kth > -np.inf else np.flatnonzero(row > -np.inf)


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
