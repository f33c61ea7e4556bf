"""Tokens that a request forbids at a position: ends that come too early, and ends of forbidden runs."""

from collections.abc import Sequence

import numpy as np

from aici_base.ids import TokenId
from aici_engine.config import SamplingParams
from aici_engine.sample.masks import Logits


def ban(
    row: Logits, params: SamplingParams, *, tokens: Sequence[TokenId], num_output: int, eos_tokens: Sequence[TokenId]
) -> None:
    """Set the logits of forbidden tokens to -inf, in place. `tokens`: prompt and output.

    The definitions are those of transformers' MinNewTokensLengthLogitsProcessor and NoBadWordsLogitsProcessor.
    """
    closed: list[int] = []
    if num_output < params.min_tokens:
        closed += [*eos_tokens, *params.stop_token_ids]
    for *begin, last in params.bad_tokens:
        if not begin or list(tokens[-len(begin) :]) == begin:
            closed.append(last)
    row[[token for token in closed if token < len(row)]] = -np.inf
