"""Forbidden tokens against transformers' logits processors."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import MinNewTokensLengthLogitsProcessor, NoBadWordsLogitsProcessor

from aici_base.ids import TokenId
from aici_engine.config import SamplingParams
from aici_engine.sample.bans import ban

VOCAB = 6
EOS = [0, 1]
_tokens = st.lists(st.integers(2, VOCAB - 1), min_size=1, max_size=8)
_runs = st.lists(st.lists(st.integers(2, VOCAB - 1), min_size=1, max_size=3), max_size=5)


def banned(params: SamplingParams, tokens: list[int], num_output: int) -> list[float]:
    row = np.arange(VOCAB, dtype=np.float32)
    ban(row, params, tokens=[TokenId(each) for each in tokens], num_output=num_output, eos_tokens=EOS)  # type: ignore[arg-type]
    return list(map(float, row))


def theirs(processor: Any, tokens: list[int]) -> list[float]:
    row: torch.Tensor = processor(torch.tensor([tokens]), torch.arange(VOCAB, dtype=torch.float32)[None])
    return list(map(float, row[0]))


@given(tokens=_tokens, runs=_runs)
@settings(max_examples=150, deadline=None)
def test_bad_words(tokens: list[int], runs: list[list[int]]) -> None:
    params = SamplingParams(bad_tokens=tuple(map(tuple, runs)))
    expected = theirs(NoBadWordsLogitsProcessor(runs, eos_token_id=EOS), tokens) if runs else list(range(VOCAB))
    assert banned(params, tokens, 1) == expected


@pytest.mark.parametrize("num_output", range(5))
def test_min_tokens(num_output: int) -> None:
    tokens = [2, 3, *[4] * num_output]
    processor = MinNewTokensLengthLogitsProcessor(2, 3, EOS)
    assert banned(SamplingParams(min_tokens=3), tokens, num_output) == theirs(processor, tokens)


def test_a_stop_token_may_not_come_too_early_either() -> None:
    params = SamplingParams(min_tokens=1, stop_token_ids=(4, 99))
    assert banned(params, [2], 0) == [-np.inf, -np.inf, 2, 3, -np.inf, 5]
    assert banned(params, [2, 3], 1) == [0, 1, 2, 3, 4, 5]
