"""Final states against the hidden states of transformers: whole prompts, chunks of prompts, in ragged batches."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from aici_base.ids import SeqId, TokenId
from aici_engine.cache.kvcache import KVCache
from aici_engine.model.interface import Model
from aici_engine.model.load import load_model
from aici_engine.native.bindings import Format
from aici_engine.native.model import NativeModel
from aici_engine.native.packed_weights import PackedWeights
from aici_engine.pooling import FinalStates
from aici_engine.step_input import Chunk
from tests.engine.model.test_models import NATIVE, NEAR, PAGE_SIZE, build, pool, sequences

FAMILIES = ("llama", "gpt2", "gemma2", "granite", "gemma3-pictures", "gpt_neox", "mixtral")
SCALED = {"granite": 0.5}
"""The common factor of the kernels' states: 1 / logits_scaling."""


def run(model: Model, prompts: list[list[TokenId]], steps: list[list[tuple[int, int, int]]]) -> list[FinalStates]:
    """Run steps of (prompt, end, number of states). Return the states of each prompt, in the order of the steps."""
    cache = KVCache(num_pages=64, page_size=PAGE_SIZE)
    storage = model.make_storage(num_pages=64, page_size=PAGE_SIZE)
    done, found = [0] * len(prompts), [np.empty((0, model.states_size), np.float32) for _ in prompts]
    for step in steps:
        chunks = []
        for i, end, num_states in step:
            if not cache.holds(SeqId(i)):
                cache.add(SeqId(i))
            assert cache.reserve(SeqId(i), end)
            tokens = prompts[i][done[i] : end]
            # Some chunks want logits beside the states, or in place of them.
            chunks.append(Chunk(SeqId(i), tokens, done[i], cache.page_table(SeqId(i)), i % 2, num_states))
            done[i] = end
        wanted = sum(num_states for _, _, num_states in step)
        states = np.full((wanted, model.states_size), np.nan, np.float32) if wanted else None
        logits = model.forward(storage, chunks, states)
        assert logits.shape == (sum(i % 2 for i, _, _ in step), model.vocab_size)
        rows = iter(() if states is None else states)
        for i, end, num_states in step:
            found[i] = np.vstack([found[i], *([next(rows)] for _ in range(num_states))])
            cache.advance(SeqId(i), prompts[i], end)
    return found


def oracle(module: Any, prompt: list[TokenId]) -> FinalStates:
    with torch.inference_mode():
        states = module(torch.tensor([prompt]), use_cache=False, output_hidden_states=True).hidden_states[-1][0]
    found: FinalStates = states.numpy()
    return found


@pytest.mark.parametrize(
    ("family", "by"),
    [*((family, "torch") for family in FAMILIES), *((family, "kernels") for family in FAMILIES if family in NATIVE)],
)
def test_final_states_are_the_hidden_states_of_transformers(family: str, by: str, tmp_path: Path) -> None:
    module = build(family)
    module.save_pretrained(tmp_path)
    module.set_attn_implementation("eager")
    prompts = sequences()
    factor = SCALED.get(family, 1.0) if by == "kernels" else 1.0
    wanted = [factor * oracle(module, prompt) for prompt in prompts]
    theirs = load_model(tmp_path, dtype="float32")
    model = NativeModel(PackedWeights.of(theirs, Format.F32), pool()) if by == "kernels" else theirs
    lens = [len(prompt) for prompt in prompts]

    whole = run(model, prompts, [[(i, n, n) for i, n in enumerate(lens)]])
    for got, all_states in zip(whole, wanted, strict=True):
        np.testing.assert_allclose(got, all_states, **NEAR)

    # In parts: a prompt with logits alone, one with its last state alone, one with states of a part of its chunk.
    parts = run(
        model, prompts, [[(0, 1, 1), (2, 7, 7), (3, 40, 0)], [(2, 19, 12), (3, 43, 1), (1, 3, 0)], [(4, 16, 5)]]
    )
    for got, some_states in zip(
        parts, (wanted[0], wanted[1][:0], wanted[2], wanted[3][-1:], wanted[4][-5:]), strict=True
    ):
        np.testing.assert_allclose(got, some_states, **NEAR)
    if by == "kernels":  # equal bits for every batch and split
        assert parts[2].tobytes() == whole[2].tobytes()
        alone = run(model, [prompts[4]], [[(0, 3, 3)], [(0, 16, 13)]])
        assert alone[0].tobytes() == whole[4].tobytes()
