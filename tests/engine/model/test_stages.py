"""Stages against the whole model, bit for bit: tiny random models of all families, cut in three and four stages."""

import itertools
import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy.typing as npt
import pytest
import torch
import transformers as tf

from aici_base.ids import SeqId, TokenId
from aici_engine.cache.kvcache import KVCache
from aici_engine.config import Dtype
from aici_engine.model import layer_range
from aici_engine.model.huggingface_stage import HuggingFaceStage
from aici_engine.model.load import align, load_model
from aici_engine.model.load_stage import describe, load_stage, stage_tensors
from aici_engine.model.stage_model import LayerRange
from aici_engine.model.tensor_source import FolderSource
from aici_engine.native.paged_attention import PagedKernel
from aici_engine.step_input import Chunk
from tests.engine.model.storage_support import fill_with_nan
from tests.engine.model.test_models import FAMILIES, PAGE_SIZE, SMALL, build, pool, sequences

EXPERTS: dict[str, Any] = {
    "num_local_experts": 4,
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "shared_expert_intermediate_size": 32,
}
FURTHER_FAMILIES: dict[str, dict[str, Any]] = {
    "Qwen2Moe": {**EXPERTS, "mlp_only_layers": [0]},
    "Qwen3Moe": {**EXPERTS, "mlp_only_layers": [1], "head_dim": 16},
    "Olmo": {},
    "Olmoe": EXPERTS,
    "Cohere": {},
    "Cohere2": {"sliding_window": 6, "head_dim": 16},
    "Starcoder2": {"sliding_window": 6},
    "Glm": {"head_dim": 16},
    "Glm4": {"head_dim": 16},
    "Helium": {"head_dim": 16},
    "Exaone4": {"sliding_window": 6, "sliding_window_pattern": 2},
    "GraniteMoe": EXPERTS,
    "Ministral": {"sliding_window": 6, "head_dim": 16},
}
"""Families of stages that `test_models.py` does not have."""


class RecordedSource(FolderSource):
    """Knows which tensors were read."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.reads: list[str] = []

    def read(self, name: str) -> npt.NDArray[Any]:
        self.reads.append(name)
        return super().read(name)


def ranges(num_layers: int, cuts: Sequence[int], *, empty_ends: bool = False) -> list[LayerRange]:
    """The stages of a model cut before the layers `cuts`; with `empty_ends` embedding and head are alone."""
    bounds = [0, *cuts, num_layers]
    pairs = list(itertools.pairwise(bounds))
    if empty_ends:
        pairs = [(0, 0), *pairs, (num_layers, num_layers)]
    return [LayerRange(*pair, i == 0, i == len(pairs) - 1) for i, pair in enumerate(pairs)]


def steps() -> list[list[tuple[int, int, int]]]:
    """Ragged batches of (sequence, start, end): decodes and prefills together, in any order."""
    prompts, sizes = sequences(), random.Random(1)
    done, found = [0] * len(prompts), []
    while any(at < len(prompt) for at, prompt in zip(done, prompts, strict=True)):
        work = []
        for i, prompt in enumerate(prompts):
            end = min(len(prompt), done[i] + sizes.choice((1, 1, 1, 5, 10)))
            if end > done[i]:
                work.append((i, done[i], end))
                done[i] = end
        sizes.shuffle(work)
        found.append(work)
    return found


def batches() -> list[list[Chunk]]:
    cache, prompts, found = KVCache(num_pages=64, page_size=PAGE_SIZE), sequences(), []
    for i in range(len(prompts)):
        cache.add(SeqId(i))
    for number, work in enumerate(steps()):
        chunks = []
        for i, start, end in work:
            assert cache.reserve(SeqId(i), end)
            rows = 0 if number % 3 == 2 and end - start > 1 else min(2, end - start)
            chunks.append(Chunk(SeqId(i), prompts[i][start:end], start, list(cache.page_table(SeqId(i))), rows))
            cache.advance(SeqId(i), prompts[i], end)
        if not any(chunk.num_logits for chunk in chunks):
            chunks[0] = chunks[0]._replace(num_logits=1)
        found.append(chunks)
    return found


def run_stages(stages: Sequence[HuggingFaceStage]) -> list[torch.Tensor]:
    """The logits of all batches. A stage without the embedding is given no token ids."""
    storages = [stage.make_storage(num_pages=64, page_size=PAGE_SIZE) for stage in stages]
    for storage in storages:
        fill_with_nan(storage)
    found = []
    for chunks in batches():
        states: torch.Tensor | None = None
        for stage, storage in zip(stages, storages, strict=True):
            if not stage.part.embedding:
                chunks = [chunk._replace(tokens=[TokenId(-1)] * len(chunk.tokens)) for chunk in chunks]
            if stage.part.head and not stage.part.num_layers and states is not None:
                states = states[logit_rows(chunks)]
            states = torch.as_tensor(stage.run(storage, chunks, states)).clone()
        assert states is not None
        found.append(states)
    return found


def logit_rows(chunks: Sequence[Chunk]) -> list[int]:
    ends = itertools.accumulate(len(chunk.tokens) for chunk in chunks)
    return [row for chunk, end in zip(chunks, ends, strict=True) for row in range(end - chunk.num_logits, end)]


def run_whole(model: Any) -> list[torch.Tensor]:
    storage = model.make_storage(num_pages=64, page_size=PAGE_SIZE)
    return [torch.as_tensor(model.forward(storage, chunks)).clone() for chunks in batches()]


@pytest.mark.parametrize(("dtype", "by"), [("float32", "torch"), ("bfloat16", "kernel")])
@pytest.mark.parametrize("family", FAMILIES)
def test_stages_compute_the_bits_of_the_whole_model(family: str, dtype: Dtype, by: str, tmp_path: Path) -> None:
    build(family).save_pretrained(tmp_path)
    compare(tmp_path, dtype, PagedKernel(pool()) if by == "kernel" else None)


@pytest.mark.parametrize("family", FURTHER_FAMILIES)
def test_stages_of_further_families_compute_the_bits_of_the_whole_model(family: str, tmp_path: Path) -> None:
    config = getattr(tf, f"{family}Config")(**{**SMALL, **FURTHER_FAMILIES[family]})
    torch.manual_seed(5)
    module = getattr(tf, f"{family}ForCausalLM")(config).eval()
    for parameter in module.parameters():
        if parameter.dim() == 1:
            parameter.data += 0.2 * torch.randn_like(parameter)
    module.save_pretrained(tmp_path)
    compare(tmp_path, "float32", None)


def test_settings_that_name_code_or_files_have_no_effect(tmp_path: Path) -> None:
    """The configuration of a stage comes from its driver."""
    build("gemma3-pictures").save_pretrained(tmp_path)
    part = LayerRange(0, 1, embedding=True, head=False)
    wanted = run_stages([load_stage(FolderSource(tmp_path), part, dtype="float32")])
    settings = json.loads((tmp_path / "config.json").read_text())
    hostile = {
        "attn_implementation": "kernels-community/flash-attn",
        "_attn_implementation": "kernels-community/flash-attn",
        "experts_implementation": "somebody/experts",
        "fusion_config": {"patch_embeddings": True},
        "auto_map": {"AutoModelForCausalLM": "somebody/model--module.Class"},
        "transformers_weights": "../../secrets.safetensors",
    }
    for each in (settings, settings["text_config"], settings["vision_config"]):
        each.update(hostile)
    (tmp_path / "config.json").write_text(json.dumps(settings))
    got = run_stages([load_stage(FolderSource(tmp_path), part, dtype="float32")])
    for one, other in zip(wanted, got, strict=True):
        assert torch.equal(one, other)


def test_all_families_that_are_not_refused_are_compared() -> None:
    tested = {type(build(family)).__name__ for family in FAMILIES}
    assert tested | {f"{family}ForCausalLM" for family in FURTHER_FAMILIES} == layer_range.FAMILIES


def compare(folder: Path, dtype: Dtype, kernel: PagedKernel | None) -> None:
    """Compare three and four stages with the whole model, and what a stage reads with `stage_tensors`."""
    whole = load_model(folder, dtype=dtype, kernel=kernel)
    align(whole.module)
    wanted = run_whole(whole)
    num_layers = len(whole.layers)
    assert describe(FolderSource(folder)).num_layers == num_layers
    for parts in (ranges(num_layers, [1, num_layers - 1]), ranges(num_layers, [2], empty_ends=True)):
        stages = []
        for part in parts:
            source = RecordedSource(folder)
            stages.append(load_stage(source, part, dtype=dtype, kernel=kernel))
            assert sorted(source.reads) == stage_tensors(source, part)
            assert stages[-1].layers == whole.layers[part.first : part.last]
        for one, other in zip(wanted, run_stages(stages), strict=True):
            assert torch.equal(one, other)
