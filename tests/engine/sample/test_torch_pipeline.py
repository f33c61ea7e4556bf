"""Sampling in torch against sampling in numpy: the same tokens, with any rest of the batch."""

import random
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from aici_base.errors import AiciError, ControllerError
from aici_base.ids import SeqId, TokenId
from aici_engine.config import SamplingParams
from aici_engine.events import TokenScore
from aici_engine.sample import pipeline, torch_pipeline
from aici_engine.sample.device_sampler import DeviceSampler
from aici_engine.sample.masks import MaskApplier
from aici_engine.sample.sampler import HostSampler, RowToSample
from aici_engine.sample.torch_pipeline import BatchParams, TensorMasks
from aici_engine.sequences.sequence import Sequence

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
NUM_DRAWS = 10


@given(data=st.data())
def test_masks_open_what_they_open_row_by_row(data: st.DataObject) -> None:
    vocab_size, num_logits = data.draw(st.integers(1, 80)), data.draw(st.integers(1, 120))
    eos = TokenId(data.draw(st.integers(0, 79)))
    others = {TokenId(token) for token in data.draw(st.sets(st.integers(0, 119), max_size=3))}
    sizes: Any = {"vocab_size": vocab_size, "eos_token": eos, "all_eos": others | {eos}, "num_logits": num_logits}
    num_bytes = 4 * ((vocab_size + 31) // 32)
    rows = data.draw(st.lists(st.binary(min_size=num_bytes, max_size=num_bytes), min_size=1, max_size=4))
    bits = np.array([np.frombuffer(row, np.uint8) for row in rows])
    found = TensorMasks(**sizes, device=DEVICE).is_open(torch.from_numpy(bits).to(DEVICE))
    for row, mask in zip(found.cpu().numpy(), bits, strict=True):
        logits = np.zeros(num_logits, np.float32)
        MaskApplier(**sizes).apply(mask, logits)
        assert row.tolist() == (logits == 0.0).tolist()


def draw_row(data: st.DataObject, size: int) -> npt.NDArray[np.float32]:
    """Rows of different or equal logits, with few or all tokens open."""
    generator = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    row = (data.draw(st.sampled_from([1.0, 4.0, 12.0])) * generator.standard_normal(size)).astype(np.float32)
    if data.draw(st.booleans()):
        row = row.round()
    row[generator.random(size) < data.draw(st.sampled_from([0.0, 0.5, 0.99]))] = -np.inf
    row[generator.integers(size)] = 0.5
    return row


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_tokens_are_those_of_the_definition(data: st.DataObject) -> None:
    size = data.draw(st.integers(1, 2000))
    rows = [draw_row(data, size) for _ in range(data.draw(st.integers(1, 4)))]
    params = [
        SamplingParams(
            temperature=data.draw(st.sampled_from([0.0, 2e-5, 0.3, 1.0, 3.0])),
            top_k=data.draw(st.sampled_from([-1, 0, 1, 3, 50, 3000])),
            top_p=data.draw(st.sampled_from([1.0, 0.99, 0.6, 0.01])),
            min_p=data.draw(st.sampled_from([0.0, 0.001, 0.2, 1.0])),
        )
        for _ in rows
    ]
    generator = random.Random(data.draw(st.integers(0, 2**32)))
    numbers = [[generator.getrandbits(64) for _ in range(NUM_DRAWS)] for _ in rows]
    draws = BatchParams.of(
        [each for each in params for _ in range(NUM_DRAWS)],
        [each for some in numbers for each in some],
        num_logits=size,
        device=DEVICE,
    )
    batch = torch.from_numpy(np.repeat(rows, NUM_DRAWS, axis=0)).to(DEVICE)
    found = torch_pipeline.choose(batch, *draws).view(len(rows), NUM_DRAWS).tolist()
    for row, param, some, tokens in zip(rows, params, numbers, found, strict=True):
        wanted = [pipeline.choose(row, param, draw) for draw in some]
        # A near tie may end either way. Greedy rows have no near ties.
        assert sum(a != b for a, b in zip(tokens, wanted, strict=True)) <= (not param.greedy)


class Pair:
    """The same sequence twice, for two samplers."""

    def __init__(self, number: int, row: list[float], allowed: set[int] | None, **sampling: Any) -> None:
        params = SamplingParams(seed=number, **sampling)
        self.seqs = [
            Sequence(SeqId(number), prompt=[TokenId(1), TokenId(2)], sampling=params, controller=None, limit=99,
                     submitted_at=0.0, sink=lambda _: None)
            for _ in range(2)
        ]  # fmt: skip
        self.row = np.array(row, np.float32)
        self.bits = None
        if allowed is not None:
            self.bits = np.frombuffer(sum(1 << token for token in allowed).to_bytes(4, "little"), np.uint8)


def samplers() -> tuple[HostSampler, DeviceSampler]:
    sizes: Any = {"vocab_size": 6, "eos_token": TokenId(5), "all_eos": {TokenId(5), TokenId(4)}, "num_logits": 8}
    host = HostSampler(MaskApplier(**sizes))
    return host, DeviceSampler(host, TensorMasks(**sizes, device=DEVICE), DEVICE)


PLAIN = [0.5, 3.0, 2.0, 2.5, -1.0, 0.0, 1.0, 7.0]


def pairs() -> list[Pair]:
    return [
        Pair(1, PLAIN, None, temperature=0.0),
        Pair(2, PLAIN, {0, 2, 5}, temperature=0.0),
        Pair(3, PLAIN, {0, 2, 5}),
        Pair(4, PLAIN, None, top_p=0.9, logprobs=2),
        Pair(5, PLAIN, {1, 2, 3}, temperature=0.0, repetition_penalty=3.0),
        Pair(6, PLAIN, None, logit_bias={3: 100.0}),
        Pair(7, PLAIN, set()),
        Pair(8, [-np.inf] * 8, None),
        Pair(9, [np.nan, *PLAIN[1:]], {0, 1}),
        Pair(10, [np.inf, *PLAIN[1:]], None, temperature=0.0),
        Pair(11, [-np.inf] * 8, None, logprobs=0),
    ]


def outcome(result: TokenScore | AiciError) -> object:
    return (type(result), str(result)) if isinstance(result, AiciError) else result


def test_each_row_has_what_the_host_gives_it_alone() -> None:
    host, there = samplers()
    crowd = pairs()
    wanted = [host.sample_batch([RowToSample(pair.seqs[0], pair.row, pair.bits, shared=True)])[0] for pair in crowd]
    rows = list(there.rows(torch.from_numpy(np.array([pair.row for pair in crowd])).to(DEVICE)))
    found = there.sample_batch(
        [RowToSample(pair.seqs[1], row, pair.bits) for pair, row in zip(crowd, rows, strict=True)]
    )
    assert list(map(outcome, found)) == list(map(outcome, wanted))
    assert [type(each) for each in found[6:]] == [ControllerError, AiciError, AiciError, AiciError, AiciError]
    assert [pair.seqs[0].sampler.random.random() for pair in crowd[:6]] == [
        pair.seqs[1].sampler.random.random() for pair in crowd[:6]
    ]


@pytest.mark.parametrize("bits", [None, np.frombuffer(b"\x08\x00\x00\x00", np.uint8)])
def test_forks_share_a_row_and_leave_it_as_it_is(bits: Any) -> None:
    host, there = samplers()
    for sampler, device in ((host, "cpu"), (there, DEVICE)):
        [row] = sampler.rows(torch.tensor([PLAIN]).to(device))
        first, second = Pair(1, [], None, temperature=0.0), Pair(2, [], None, temperature=0.0)
        batch: Any = [RowToSample(first.seqs[0], row, bits, shared=True), RowToSample(second.seqs[0], row, None)]
        assert sampler.sample_batch(batch) == [TokenScore(TokenId(7 if bits is None else 3)), TokenScore(TokenId(7))]


def test_nobody_wants_anything() -> None:
    assert samplers()[1].sample_batch([]) == []


def test_a_device_is_asked_for_nothing_before_all_is_told() -> None:
    """On the device `meta`, tensors have shapes and no numbers: reading a number, or a CPU tensor, is an error."""
    nowhere = torch.device("meta")
    sizes: Any = {"vocab_size": 6, "eos_token": TokenId(5), "all_eos": {TokenId(5), TokenId(4)}, "num_logits": 8}
    sampler = DeviceSampler(samplers()[0], TensorMasks(**sizes, device=nowhere), nowhere)
    options: list[dict[str, Any]] = [{"temperature": 0.0}, {"top_k": 3}, {"top_p": 0.5}, {"top_k": 3, "min_p": 0.1}]
    for params in [*([each] for each in options), options]:
        crowd = [Pair(1, PLAIN, allowed, **each) for each in params for allowed in (None, {1})]
        rows = sampler.rows(torch.empty(len(crowd), 8, device=nowhere))
        wanted = [RowToSample(pair.seqs[0], row, pair.bits) for pair, row in zip(crowd, rows, strict=True)]
        assert sampler.launch(wanted).shape == (len(crowd),)
