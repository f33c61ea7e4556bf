"""What the model wanted, and what the mask refused: the explanation of a sampled token."""

import numpy as np

from aici_base.ids import TokenId
from aici_engine.events import Explanation, LikelyToken
from aici_engine.sample.masks import Logits
from aici_engine.sample.pipeline import top_k


def explain(before: Logits, after: Logits, token: TokenId, k: int) -> Explanation:
    """Return the explanation of `token`, sampled from a row of finite logits, with the `k` likeliest tokens.

    `before`, `after`: the logits before and after the mask. Equally likely tokens stand in the order of the vocabulary.
    The texts of the tokens are empty.
    """
    ids = top_k(before, k) if k else np.empty(0, np.intp)
    ids = ids[np.argsort(-before[ids], kind="stable")][:k]
    probabilities = _probabilities(before)
    is_open = after > -np.inf
    return Explanation(
        num_allowed=int(is_open.sum()),
        probability=float(probabilities[token]),
        masked_probability=float(_probabilities(after)[token]),
        likeliest=tuple(
            LikelyToken(TokenId(int(each)), "", float(probabilities[each]), bool(is_open[each])) for each in ids
        ),
    )


def _probabilities(row: Logits) -> Logits:
    weights: Logits = np.exp(row - row.max())
    weights /= weights.sum(dtype=np.float64)
    return weights
