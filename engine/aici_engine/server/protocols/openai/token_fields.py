"""vLLM's fields about tokens: `token_ids`, `prompt_token_ids` and `prompt_logprobs`."""

from collections.abc import Sequence
from typing import Any

from aici_engine.server.link.wire import Score, TokenOut
from aici_engine.vocabulary import ModelVocabulary


def token_ids(tokens: Sequence[TokenOut]) -> dict[str, Any]:
    return {"token_ids": [token.token for token in tokens]}


def prompt_logprobs(vocabulary: ModelVocabulary, scores: Sequence[Score], k: int) -> list[dict[str, Any] | None]:
    """Return for each token of a prompt its log-probability and those of the `k` likeliest tokens, by token number.

    The first token has none. `rank` is null for a token not among the likeliest.
    """

    def entry(score: Score) -> dict[str, Any] | None:
        token, logprob, top = score
        if logprob is None:
            return None
        ranks = {each: rank for rank, (each, _) in enumerate(top, 1)}
        found = {token: logprob} | dict(top[:k])
        return {
            str(each): {
                "logprob": its_logprob,
                "rank": ranks.get(each),
                "decoded_token": vocabulary.decode([each]) or vocabulary.name_of(each),
            }
            for each, its_logprob in found.items()
        }

    return [entry(score) for score in scores]
