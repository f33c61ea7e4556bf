"""Masks of guests as vLLM has them."""

import numpy as np
import pytest

from aici_base.ids import TokenId
from aici_engine.vllm.eos_words import EosWords

NUM_LOGITS = 100
VOCAB_SIZE = 64


def opened(allowed: set[int], *, eos: int, all_eos: set[int]) -> set[int]:
    """The tokens that vLLM may sample if a guest allows `allowed`."""
    bits = np.packbits([token in allowed for token in range(VOCAB_SIZE)], bitorder="little")
    words = EosWords(num_logits=NUM_LOGITS, eos_token=TokenId(eos), all_eos=map(TokenId, all_eos)).of(bits)
    assert words.shape == (4,)
    return {token for token in range(128) if words[token // 32] >> token % 32 & 1}


@pytest.mark.parametrize(
    ("allowed", "all_eos", "wanted"),
    [
        ({1, 31, 32, 62}, {63, 90}, {1, 31, 32, 62}),  # no EOS allowed
        ({1, 63}, {63, 90}, {1, 63, 90}),  # also one beyond the guests' vocabulary
        ({1, 63}, {5}, {1, 5}),  # the guests' EOS would be text
        ({1, 5}, {5, 63}, {1}),  # an EOS that guests take for text is closed
        ({63}, {63, 120}, {63}),  # beyond the logits
        (set(), {63}, set()),
    ],
)
def test_eos_opens_and_closes_all(allowed: set[int], all_eos: set[int], wanted: set[int]) -> None:
    assert opened(allowed, eos=63, all_eos=all_eos) == wanted
