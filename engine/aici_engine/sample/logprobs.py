"""Log-probabilities of sampled tokens, and of the tokens of a prompt."""

import math
from collections.abc import Callable, Iterable

import numpy as np

from aici_base.errors import AiciError
from aici_base.ids import TokenId
from aici_engine.events import TokenScore
from aici_engine.sample.masks import Logits
from aici_engine.sample.pipeline import NOT_FINITE, top_k
from aici_engine.sequences.sequence import Sequence

LogSoftmax = Callable[[Logits, TokenId, int], TokenScore]


def log_softmax(row: Logits, token: TokenId, k: int) -> TokenScore:
    """Return the log-probability of `token` and of the `k` likeliest tokens, in natural logarithms, summed in f64.

    Equally likely tokens stand in the order of the vocabulary. Raises AiciError for a row with NaN, or without a finite
    logit.
    """
    top = row.max()
    if not np.isfinite(top):
        raise AiciError(NOT_FINITE)
    total = float(top) + math.log(np.exp(row - top).sum(dtype=np.float64))
    ranked: list[tuple[TokenId, float]] = []
    if k:
        ids = top_k(row, k)
        ids = ids[np.argsort(-row[ids], kind="stable")][:k]
        ranked = [(TokenId(int(each)), float(row[each]) - total) for each in ids]
    return TokenScore(token, float(row[token]) - total, tuple(ranked))


def num_rows(seq: Sequence, end: int) -> int:
    """Return how many rows of logits, the last rows of a chunk up to position `end`, are needed to score the prompt.

    A row scores the next token. Tokens scored before a preemption are not scored again.
    """
    scores = seq.sampler.prompt_scores
    return 0 if scores is None else max(0, end + 1 - scores.next_index)


def score(seq: Sequence, rows: Iterable[Logits], log_softmax: LogSoftmax) -> None:
    """Score the next tokens of the prompt from `rows`, the rows of a chunk by `num_rows`.

    The row of the prompt's last token scores nothing.
    """
    scores = seq.sampler.prompt_scores
    assert scores is not None
    for token, row in zip(seq.tokens[scores.next_index :], rows, strict=False):
        scores.scores.append(log_softmax(row, token, seq.sampling.logprobs or 0))
