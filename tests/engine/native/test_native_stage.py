"""A decoder in stages gives the logits of the decoder in one, to the last bit."""

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from aici_base.ids import SeqId, TokenId
from aici_engine.cache.ids import PageId
from aici_engine.model.huggingface import HuggingFaceModel
from aici_engine.model.load import adopt, load_model
from aici_engine.model.stage_range import LayerRange
from aici_engine.native import library
from aici_engine.native.bindings import Format
from aici_engine.native.model import NativeModel
from aici_engine.native.packed_weights import PackedWeights
from aici_engine.native.stage import NativeStage
from aici_engine.native.thread_pool import ThreadPool
from aici_engine.step_input import Chunk
from tests.engine.model import test_models
from tests.engine.model.storage_support import fill_with_nan
from tests.engine.native import test_native_model
from tests.engine.native.test_native_model import ABLE
from tests.support.model import default_model_dir

pytestmark = pytest.mark.skipif(not ABLE, reason="no kernels for this processor")
PAGE_SIZE = 16
Step = list[tuple[int, int, int]]
"""Per chunk: the sequence, its number of tokens after the step, and the number of rows of logits."""
STEPS: list[Step] = [
    [(0, 3, 2), (1, 1, 1), (2, 15, 0)],
    [(2, 16, 1), (0, 4, 1), (1, 3, 1)],
    [(1, 4, 1), (2, 17, 0)],
    [(2, 18, 0)],
]
"""Ragged prompts, decode steps, a chunk without logits, a step without logits."""


class Stages:
    """Stages in one process. States go from stage to stage through bytes at an odd address, as from a socket."""

    def __init__(self, stages: Sequence[NativeStage]) -> None:
        self.stages = stages
        self.storages = [stage.make_storage(num_pages=8, page_size=PAGE_SIZE) for stage in stages]
        for storage in self.storages:
            fill_with_nan(storage)

    def step(self, chunks: list[Chunk]) -> torch.Tensor:
        states: torch.Tensor | None = None
        for stage, storage in zip(self.stages, self.storages, strict=True):
            known = chunks if stage.part.embedding else [chunk._replace(tokens=Hidden(chunk)) for chunk in chunks]
            if states is not None and stage.part.head and not stage.part.num_layers:
                states = states[logit_rows(chunks)]
            states = torch.as_tensor(stage.run(storage, known, None if states is None else at_an_odd_address(states)))
        assert states is not None
        return states.clone()

    def logits(self, vocab_size: int) -> list[torch.Tensor]:
        """Return the logits of STEPS."""
        numbers, done, answers = np.random.default_rng(4), [0, 0, 0], []
        sequences = [[TokenId(int(token)) for token in numbers.integers(3, vocab_size, 24)] for _ in done]
        for step in STEPS:
            chunks = []
            for i, end, num_logits in step:
                pages = [PageId(5 - i), PageId(i)] if end > PAGE_SIZE else [PageId(5 - i)]
                chunks.append(Chunk(SeqId(i), sequences[i][done[i] : end], done[i], pages, num_logits))
                done[i] = end
            answers.append(self.step(chunks))
        return answers


class Hidden(Sequence[TokenId]):
    """Tokens that a stage may count, not read."""

    def __init__(self, chunk: Chunk) -> None:
        self._count = len(chunk.tokens)

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: Any) -> Any:
        raise AssertionError("a stage without the embedding has read token ids")


def at_an_odd_address(states: torch.Tensor) -> torch.Tensor:
    content = bytearray(1 + states.nbytes)
    content[1:] = states.numpy().tobytes()
    result = (
        torch.frombuffer(content, dtype=torch.float32, offset=1, count=states.numel()) if states.numel() else states
    )
    assert not states.numel() or result.data_ptr() % 4
    return result.view(states.shape)


def logit_rows(chunks: list[Chunk]) -> list[int]:
    ends = itertools.accumulate(len(chunk.tokens) for chunk in chunks)
    return [row for chunk, end in zip(chunks, ends, strict=True) for row in range(end - chunk.num_logits, end)]


def ranges(num_layers: int, cuts: Sequence[int]) -> list[LayerRange]:
    """Return the ranges of stages that begin at layers 0 and `cuts`."""
    ends = [0, *cuts, num_layers]
    last = len(cuts)
    return [LayerRange(a, b, i == 0, i == last) for i, (a, b) in enumerate(itertools.pairwise(ends))]


def cut(packed: PackedWeights, part: LayerRange) -> PackedWeights:
    """Return the views of `packed` that `part` needs."""
    config, layers = packed.config, slice(part.first, part.last)
    names = {"norm"} if part.head else set()
    kinds = ["head"] * (part.head or (config.tied_embeddings and part.embedding))
    kinds += ["embedding", "positions"] * part.embedding + [f"layers.{i}" for i in range(part.first, part.last)]
    names |= {name for name in packed.tensors for kind in kinds if name.startswith(f"{kind}.")}
    return PackedWeights(
        replace(config, part=part, windows=config.windows[layers], rope_scales=config.rope_scales[layers]),
        {name: packed.tensors[name] for name in names},
        packed.blocks,
    )


def check_cuts(model: HuggingFaceModel, weights: Format, all_cuts: Sequence[Sequence[int]]) -> None:
    packed = PackedWeights.of(model, weights)
    pool = ThreadPool(library.of_level(ABLE[-1]), 1)
    whole = Stages([NativeModel(packed, pool)]).logits(model.vocab_size)
    assert [len(rows) for rows in whole] == [3, 3, 1, 0]
    assert all(rows.isfinite().all() for rows in whole)
    for cuts in all_cuts:
        stages = Stages([NativeStage(cut(packed, part), pool) for part in ranges(len(model.layers), cuts)])
        got = stages.logits(model.vocab_size)
        assert all(torch.equal(a, b) for a, b in zip(got, whole, strict=True)), cuts


@pytest.fixture(scope="module")
def default_model() -> HuggingFaceModel:
    return load_model(default_model_dir(), dtype="float32")


@pytest.mark.e2e
@pytest.mark.parametrize("weights", list(Format)[:4])
def test_every_cut_of_the_default_model(default_model: HuggingFaceModel, weights: Format) -> None:
    several = [(7, 19), (0, 30), (3, 9, 16, 25), (1, 2, 2, 29)]
    check_cuts(default_model, weights, [*((layer,) for layer in range(31)), *several])


@pytest.mark.parametrize("family", sorted(test_models.NATIVE))
def test_every_family(family: str) -> None:
    model = adopt(test_models.build(family), eos_tokens=frozenset())
    num_layers = len(model.layers)
    check_cuts(model, Format.F32, [(i,) for i in range(num_layers + 1)] + [(1, 2), (0, 2), (1, num_layers)])
    check_cuts(model, Format.INT8, [(1,), (1, 2)])


@pytest.mark.parametrize("weights", list(Format)[:4])
@pytest.mark.parametrize("variant", test_native_model.FAMILIES)
def test_every_variant(variant: str, weights: Format) -> None:
    model = adopt(test_native_model.module_of(variant), eos_tokens=frozenset())
    check_cuts(model, weights, [(0,), (1,), (2,), (3,), (1, 2)])
