"""The pipeline against transformers' logits processors, and against counts of its own draws."""

import random
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import (
    LogitsProcessorList,
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from aici_base.ids import TokenId
from aici_engine.config import SamplingParams
from aici_engine.sample import pipeline
from aici_engine.sample.native import NativeSampling
from aici_engine.sample.pipeline import Choose, penalize, top_k

OFF: dict[str, Any] = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0}


@pytest.fixture
def choose(native: NativeSampling | None) -> Choose:
    return pipeline.choose if native is None else native.choose


def draws(num: int) -> list[int]:
    generator = random.Random(num)
    return [generator.getrandbits(64) for _ in range(num)]


def oracle(row: np.ndarray[Any, Any], p: SamplingParams) -> np.ndarray[Any, Any]:
    """Return probabilities by the processors of transformers, in our order."""
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
def test_tokens_come_as_often_as_transformers_has_them(choose: Choose, size: int, options: dict[str, Any]) -> None:
    params = SamplingParams(**(OFF | options))
    row = (np.random.default_rng(size).standard_normal(size) * 3).astype(np.float32)
    wanted = oracle(row, params)
    num = 2000
    counts = np.bincount([choose(row.copy(), params, draw) for draw in draws(num)], minlength=size)
    assert wanted[counts > 0].min() > 0, "what transformers leaves out never comes"
    # Rare tokens are counted together, so that the expected counts make chi-squared nearly normal.
    order = np.argsort(wanted)
    cells = np.minimum(wanted[order].cumsum() * num // 20, 1e9).astype(int)
    expected = np.bincount(cells, wanted[order] * num)
    found = np.bincount(cells, counts[order])
    kept = expected > 0
    chi2 = ((found - expected)[kept] ** 2 / expected[kept]).sum()
    freedom = max(1, kept.sum() - 1)
    assert chi2 < freedom + 6 * np.sqrt(2 * freedom)


def test_a_draw_survives_rounding_errors(choose: Choose) -> None:
    """Rounding errors of a different batch, over a large vocabulary in which a shift of all draws would show."""
    generator = np.random.default_rng(3)
    row = generator.standard_normal(49152).astype(np.float32)
    other = row + (1e-5 * generator.standard_normal(len(row))).astype(np.float32)
    params = SamplingParams(**OFF)
    assert sum(choose(row, params, draw) != choose(other, params, draw) for draw in draws(200)) <= 1


def test_repetition_penalty_is_that_of_transformers() -> None:
    row = np.random.default_rng(1).standard_normal(50).astype(np.float32)
    seen = [3, 4, 4, 9]
    wanted = RepetitionPenaltyLogitsProcessor(1.3)(torch.tensor([seen]), torch.from_numpy(row.copy())[None])[0]
    tokens = [TokenId(token) for token in seen]
    penalize(row, SamplingParams(repetition_penalty=1.3), prompt=tokens[:2], output=tokens[2:])
    assert np.allclose(row, wanted.numpy())


@pytest.mark.parametrize("penalty", [5e-324, 1e-45, 1e308])
def test_no_repetition_penalty_makes_a_logit_infinite(penalty: float) -> None:
    row = np.array([3.0, 0.0, -3.0, 1.0, -np.inf], np.float32)
    seen = [TokenId(token) for token in (0, 1, 2, 4)]
    penalize(row, SamplingParams(repetition_penalty=penalty), prompt=seen, output=[])
    assert np.isfinite(row.max())
    assert not np.isnan(row).any()
    assert row[1] == 0.0
    assert row[4] == -np.inf


def test_presence_and_frequency_count_the_output_only() -> None:
    row = np.zeros(5, np.float32)
    params = SamplingParams(presence_penalty=0.5, frequency_penalty=0.25)
    penalize(row, params, prompt=[TokenId(0)], output=[TokenId(1), TokenId(2), TokenId(2)])
    assert row.tolist() == [0.0, -0.75, -1.0, 0.0, 0.0]


@given(
    row=st.lists(st.integers(-6, 6), min_size=1, max_size=200).map(lambda row: np.array(row, np.float32)),
    closed=st.integers(-7, 6),
    k=st.integers(0, 60),
)
def test_the_k_likeliest_and_all_that_equal_the_last_of_them(row: Any, closed: int, k: int) -> None:
    row[row <= closed] = -np.inf
    least = np.sort(row)[::-1][:k][-1] if k else -np.inf
    assert top_k(row, k).tolist() == [i for i, logit in enumerate(row) if logit >= least and logit > -np.inf]


def test_greedy_takes_the_first_of_equals(choose: Choose) -> None:
    assert choose(np.array([0, 2, 2, 1], np.float32), SamplingParams(temperature=0.0), 9) == 1


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("bad", [[-np.inf, -np.inf], [np.nan, 1.0], [np.inf, 0.0]])
def test_logits_that_are_not_finite_are_an_error(choose: Choose, temperature: float, bad: list[float]) -> None:
    with pytest.raises(ValueError, match=r"finite|allowed"):
        choose(np.array(bad, np.float32), SamplingParams(temperature=temperature), 5)


def test_a_tiny_temperature_does_not_overflow(choose: Choose) -> None:
    row = np.array([1.0, 30.0, 29.9], np.float32)
    assert choose(row, SamplingParams(temperature=2e-5), draws(1)[0]) == 1


def test_masked_tokens_are_never_drawn(choose: Choose) -> None:
    row = np.full(100, -np.inf, np.float32)
    row[[10, 20]] = 0.0
    drawn = {choose(row.copy(), SamplingParams(**OFF), draw) for draw in draws(50)}
    assert drawn == {10, 20}
    assert {choose(row.copy(), SamplingParams(top_k=50), draw) for draw in draws(50)} == {10, 20}


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_the_kernels_choose_what_the_definition_does(native: NativeSampling | None, data: st.DataObject) -> None:
    """Rows of different logits, of equal logits, and of few open tokens. A near tie may end either way."""
    if native is None:
        return
    generator = np.random.default_rng(data.draw(st.integers(0, 2**32), "seed"))
    size = data.draw(st.one_of(st.integers(1, 6000), st.just(49152)))
    row = data.draw(st.sampled_from([0.1, 1.0, 4.0, 12.0])) * generator.standard_normal(size)
    row = row.astype(np.float32)
    if data.draw(st.booleans(), "equals"):
        row = row.round()
    row[generator.random(len(row)) < data.draw(st.sampled_from([0.0, 0.5, 0.99]), "closed")] = -np.inf
    row[generator.integers(len(row))] = 0.5
    params = SamplingParams(
        temperature=data.draw(st.sampled_from([0.0, 0.3, 1.0, 3.0])),
        top_k=data.draw(st.sampled_from([0, 1, 3, 50, 256, 257, 3000, 5000])),
        top_p=data.draw(st.sampled_from([1.0, 0.9999, 0.99, 0.6, 0.01])),
        min_p=data.draw(st.sampled_from([0.0, 0.001, 0.2, 1.0])),
    )
    numbers = draws(10)
    found = [native.choose(row, params, draw) for draw in numbers]
    wanted = [pipeline.choose(row, params, draw) for draw in numbers]
    assert sum(a != b for a, b in zip(found, wanted, strict=True)) <= 1
