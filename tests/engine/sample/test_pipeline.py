"""The pipeline against transformers' logits processors, and against its own definition by counting."""

from typing import Any

import numpy as np
import pytest
import torch
from transformers import (
    LogitsProcessorList,
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from aici_engine.config import SamplingParams
from aici_engine.sample.pipeline import choose, penalize
from aici_runtime.ids import TokenId

OFF: dict[str, Any] = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0}


def oracle(row: np.ndarray[Any, Any], p: SamplingParams) -> np.ndarray[Any, Any]:
    """Probabilities by transformers, its processors in our order."""
    steps: list[Any] = [TemperatureLogitsWarper(p.temperature)]
    if p.top_k > 0:
        steps.append(TopKLogitsWarper(p.top_k))
    if p.top_p < 1:
        steps.append(TopPLogitsWarper(p.top_p))
    if p.min_p > 0:
        steps.append(MinPLogitsWarper(p.min_p))
    logits = LogitsProcessorList(steps)(torch.zeros(1, 1, dtype=torch.long), torch.from_numpy(row)[None].double())
    probabilities: np.ndarray[Any, Any] = logits.softmax(-1)[0].numpy()
    return probabilities


@pytest.mark.parametrize("size", [50, 3000])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"temperature": 0.3},
        {"temperature": 2.5},
        {"top_k": 1},
        {"top_k": 7},
        {"top_p": 0.5},
        {"top_p": 0.95},
        {"top_p": 0.01},
        {"min_p": 0.1},
        {"temperature": 0.7, "top_k": 20, "top_p": 0.9, "min_p": 0.05},
        {"temperature": 30.0, "top_p": 0.99},
        {"top_k": 100000},
    ],
)
def test_tokens_lie_where_transformers_has_them_in_the_cumulative_distribution(
    size: int, options: dict[str, Any]
) -> None:
    params = SamplingParams(**(OFF | options))
    generator = np.random.default_rng(size)
    for _ in range(3):
        row = (generator.standard_normal(size) * 3).astype(np.float32)
        cumulative = oracle(row, params).cumsum()
        for uniform in [0.0, 1 - 1e-9, *generator.random(60)]:
            # A hair's breadth around a border either neighbour is right: f32 against f64.
            low, high = np.searchsorted(cumulative, [uniform - 1e-6, uniform + 1e-6], side="right")
            token = choose(row.copy(), params, float(uniform))
            assert min(low, size - 1) <= token <= min(high, size - 1)
            assert oracle(row, params)[token] > 0


def test_counts_follow_the_probabilities() -> None:
    row = np.log(np.array([0.5, 0.3, 0.15, 0.05], np.float32))
    params = SamplingParams(**(OFF | {"top_p": 0.9}))
    generator = np.random.default_rng(0)
    counts = np.bincount([choose(row.copy(), params, u) for u in generator.random(20000)], minlength=4)
    assert np.allclose(counts / 20000, np.array([0.5, 0.3, 0.15, 0]) / 0.95, atol=0.015)


def test_repetition_penalty_is_that_of_transformers() -> None:
    row = np.random.default_rng(1).standard_normal(50).astype(np.float32)
    seen = [3, 4, 4, 9]
    wanted = RepetitionPenaltyLogitsProcessor(1.3)(torch.tensor([seen]), torch.from_numpy(row.copy())[None])[0]
    tokens = [TokenId(token) for token in seen]
    penalize(row, SamplingParams(repetition_penalty=1.3), prompt=tokens[:2], output=tokens[2:])
    assert np.allclose(row, wanted.numpy())


def test_presence_and_frequency_count_the_output_only() -> None:
    row = np.zeros(5, np.float32)
    params = SamplingParams(presence_penalty=0.5, frequency_penalty=0.25)
    penalize(row, params, prompt=[TokenId(0)], output=[TokenId(1), TokenId(2), TokenId(2)])
    assert row.tolist() == [0.0, -0.75, -1.0, 0.0, 0.0]


def test_greedy_takes_the_first_of_equals() -> None:
    assert choose(np.array([0, 2, 2, 1], np.float32), SamplingParams(temperature=0.0), 0.9) == 1


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("bad", [[-np.inf, -np.inf], [np.nan, 1.0], [np.inf, 0.0]])
def test_logits_that_are_not_finite_are_an_error(temperature: float, bad: list[float]) -> None:
    with pytest.raises(ValueError, match=r"finite|allowed"):
        choose(np.array(bad, np.float32), SamplingParams(temperature=temperature), 0.5)


def test_a_tiny_temperature_does_not_overflow() -> None:
    row = np.array([1.0, 30.0, 29.9], np.float32)
    assert choose(row, SamplingParams(temperature=2e-5), 0.999) == 1


def test_masked_tokens_are_never_drawn() -> None:
    row = np.full(100, -np.inf, np.float32)
    row[[10, 20]] = 0.0
    drawn = {choose(row.copy(), SamplingParams(**OFF), u / 50) for u in range(50)}
    assert drawn == {10, 20}
    assert {choose(row.copy(), SamplingParams(top_k=50), u / 50) for u in range(50)} == {10, 20}
