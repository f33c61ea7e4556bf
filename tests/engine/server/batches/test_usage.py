"""The usage of a batch, from results of every endpoint."""

from typing import Any

import orjson

from aici_engine.server.batches.line import Answer, failure, result
from aici_engine.server.batches.usage import usage_of

CHAT = {
    "prompt_tokens": 7,
    "completion_tokens": 5,
    "total_tokens": 12,
    "prompt_tokens_details": {"cached_tokens": 3},
    "completion_tokens_details": {"reasoning_tokens": 2},
}
RESPONSE = {
    "input_tokens": 10,
    "input_tokens_details": {"cached_tokens": 1},
    "output_tokens": 20,
    "output_tokens_details": {"reasoning_tokens": 4},
    "total_tokens": 30,
}
EMBEDDINGS = {"prompt_tokens": 100, "total_tokens": 100}


def _result(usage: Any) -> bytes:
    return result("a", Answer(200, orjson.dumps({"usage": usage} if usage else {})))


def test_tokens_of_all_endpoints_are_summed() -> None:
    plain = {"prompt_tokens": 1, "completion_tokens": 1, "prompt_tokens_details": None}
    texts = [*map(_result, (CHAT, RESPONSE, EMBEDDINGS, plain, None)), failure("b", "batch_expired", "late")]
    assert usage_of(texts) == {
        "input_tokens": 118,
        "input_tokens_details": {"cached_tokens": 4},
        "output_tokens": 26,
        "output_tokens_details": {"reasoning_tokens": 6},
        "total_tokens": 144,
    }


def test_a_batch_without_answers_used_nothing() -> None:
    assert usage_of([])["total_tokens"] == 0
