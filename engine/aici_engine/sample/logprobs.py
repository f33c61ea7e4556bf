"""Log-probabilities: of a sampled token among the others of its row, and of the tokens of a prompt."""

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
    """Of one token, and of the `k` likeliest; equals stand in the order of the vocabulary. The sum is f64's.

    AiciError if a logit is NaN or none is finite.
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
    """How many of the last rows of a chunk that ends before position `end` say how likely a token of the prompt is.

    Each tells of the token after it. What was scored before a preemption is not scored again.
    """
    scores = seq.sampler.prompt_scores
    return 0 if scores is None else max(0, end + 1 - scores.next_index)


def score(seq: Sequence, rows: Iterable[Logits], log_softmax: LogSoftmax) -> None:
    """`rows`: of a chunk as `num_rows` asked; that of the last token tells of none."""
    scores = seq.sampler.prompt_scores
    assert scores is not None
    for token, row in zip(seq.tokens[scores.next_index :], rows, strict=False):
        scores.scores.append(log_softmax(row, token, seq.sampling.logprobs or 0))
