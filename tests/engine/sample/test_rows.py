"""Many rows in one call against one row after another."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aici_base.errors import AiciError, ControllerError
from aici_base.ids import SeqId, TokenId
from aici_engine.config import SamplingParams
from aici_engine.events import TokenScore
from aici_engine.sample.masks import MaskApplier
from aici_engine.sample.native import NativeSampling
from aici_engine.sample.sampler import HostSampler, RowToSample
from aici_engine.sequences.sequence import Sequence

EOS = TokenId(3)


@pytest.fixture(scope="module")
def kernels(native: NativeSampling | None) -> NativeSampling:
    if native is None:
        pytest.skip("numpy samples row by row")
    return native


def sequence(number: int, sampling: SamplingParams) -> Sequence:
    prompt = [TokenId(1), TokenId(5)]
    return Sequence(
        SeqId(number), prompt=prompt, sampling=sampling, controller=None, limit=9, sink=lambda _: None, submitted_at=0.0
    )


def samplings() -> st.SearchStrategy[SamplingParams]:
    greedy = st.just(SamplingParams(temperature=0.0))
    drawn = st.builds(
        SamplingParams,
        temperature=st.sampled_from([0.3, 1.0]),
        top_k=st.sampled_from([0, 1, 4]),
        top_p=st.sampled_from([1.0, 0.5]),
        min_p=st.sampled_from([0.0, 0.2]),
        seed=st.integers(0, 9),
    )
    others = st.sampled_from(
        [
            SamplingParams(temperature=0.0, logprobs=2),
            SamplingParams(temperature=0.0, repetition_penalty=1.5),
            SamplingParams(temperature=0.0, logit_bias={5: 3.0}),
            SamplingParams(temperature=0.0, min_tokens=1),
        ]
    )
    return st.one_of(greedy, greedy, drawn, others)


numbers = st.sampled_from([0.0, 1.0, 1.0, 2.0, -1.0, 0.5, float("-inf"), float("-inf")])
all_numbers = st.one_of(numbers, numbers, numbers, st.sampled_from([float("nan"), float("inf")]))


@given(st.data())
def test_the_same_tokens_and_errors(kernels: NativeSampling, data: st.DataObject) -> None:
    num_logits = data.draw(st.sampled_from([6, 16, 31, 48, 100, 600]))
    described = data.draw(st.integers(1, num_logits + 40))
    others = data.draw(st.sets(st.integers(0, num_logits + 9).map(TokenId), max_size=3))
    sizes: Any = {"vocab_size": described, "eos_token": EOS, "all_eos": {EOS, *others}, "num_logits": num_logits}
    one_by_one = HostSampler(MaskApplier(**sizes, close=kernels.mask), kernels.choose, kernels.log_softmax)
    at_once = HostSampler(
        MaskApplier(**sizes, close=kernels.mask), kernels.choose, kernels.log_softmax, kernels.choose_rows
    )
    values = data.draw(st.sampled_from([numbers, all_numbers]))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    params, masks, rows = [], [], []
    for _ in range(data.draw(st.integers(0, 5))):
        params.append(data.draw(samplings()))
        some = np.array(data.draw(st.lists(values, min_size=4, max_size=9)), np.float32)
        rows.append(rng.choice(some, num_logits).astype(np.float32))
        density = data.draw(st.sampled_from([None, 0.0, 0.1, 0.9]))
        bits = rng.random(32 * -(-described // 32)) < (density or 0.0)
        masks.append(None if density is None else np.packbits(bits, bitorder="little"))

    def sampled(sampler: HostSampler, *, shared: bool) -> list[tuple[type, str]]:
        wanted = [
            RowToSample(sequence(number, sampling), row.copy(), bits, shared=shared)
            for number, (sampling, row, bits) in enumerate(zip(params, rows, masks, strict=True))
        ]
        return [(type(found), str(found)) for found in sampler.sample_batch(wanted)]

    shared = data.draw(st.booleans())
    assert sampled(at_once, shared=shared) == sampled(one_by_one, shared=shared)


def test_a_shared_row_stays_as_it_is(kernels: NativeSampling) -> None:
    masks = MaskApplier(vocab_size=64, eos_token=EOS, all_eos=[EOS, TokenId(9)], num_logits=64)
    sampler = HostSampler(masks, kernels.choose, kernels.log_softmax, kernels.choose_rows)
    row = np.arange(64, dtype=np.float32)
    bits = [np.packbits(np.arange(64) == token, bitorder="little") for token in (7, 8)]
    greedy = SamplingParams(temperature=0.0)
    family = [
        RowToSample(sequence(1, greedy), row, bits[0], shared=True),
        RowToSample(sequence(2, greedy), row, bits[1]),
    ]
    assert sampler.sample_batch(family) == [TokenScore(TokenId(7)), TokenScore(TokenId(8))]


def test_a_mask_without_tokens_fails_its_own_row(kernels: NativeSampling) -> None:
    masks = MaskApplier(vocab_size=64, eos_token=EOS, all_eos=[EOS], num_logits=64)
    sampler = HostSampler(masks, kernels.choose, kernels.log_softmax, kernels.choose_rows)
    greedy = SamplingParams(temperature=0.0)
    rows = np.ones((3, 64), np.float32)
    rows[2, 5] = np.nan
    wanted = [
        RowToSample(sequence(1, greedy), rows[0], np.zeros(8, np.uint8)),
        RowToSample(sequence(2, greedy), rows[1], None),
        RowToSample(sequence(3, greedy), rows[2], None),
    ]
    empty, token, bad = sampler.sample_batch(wanted)
    assert isinstance(empty, ControllerError)
    assert token == TokenScore(TokenId(0))
    assert isinstance(bad, AiciError)
    assert str(bad) == "the model's logits are not finite"


@pytest.mark.parametrize("temperature", [0.0, 0.2])
@pytest.mark.parametrize(("is_open", "token"), [(True, 60), (False, 7)])
def test_other_eos_tokens_are_open_with_the_eos_of_guests(
    kernels: NativeSampling, temperature: float, is_open: bool, token: int
) -> None:
    masks = MaskApplier(vocab_size=64, eos_token=EOS, all_eos=[EOS, TokenId(60), TokenId(61)], num_logits=70)
    sampler = HostSampler(masks, kernels.choose, kernels.log_softmax, kernels.choose_rows)
    row = np.zeros(70, np.float32)
    row[[60, 61, 65]] = 50, 50, 90
    row[7] = 40
    row[61] -= 40
    allowed = {7, 61, *([3] if is_open else [])}
    bits = np.packbits([number in allowed for number in range(64)], bitorder="little")
    wanted = [RowToSample(sequence(1, SamplingParams(temperature=temperature)), row, bits)]
    assert sampler.sample_batch(wanted) == [TokenScore(TokenId(token))]
