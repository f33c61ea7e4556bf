"""Tiny models in GGUF files give the logits of the original models; unsupported files are refused with a reason."""

import json
import re
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType, GGUFWriter
from safetensors import safe_open
from transformers import Gemma2Config
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from aici_base.errors import UnavailableError, UsageError
from aici_base.ids import SeqId
from aici_engine.config import EngineConfig
from aici_engine.model.compute_device import ComputeDevice
from aici_engine.model.load import load_model
from aici_engine.native import library
from aici_engine.native.backend import make_model
from aici_engine.native.bindings import Format
from aici_engine.native.model import NativeModel
from aici_engine.native.packed_weights import PackedWeights
from aici_engine.store.convert import convert_gguf
from aici_engine.store.gguf_config import complete_config
from tests.engine.model.quantize_support import dequantize, quantize_int4, quantize_int8
from tests.engine.model.test_models import NEAR, Runner, build, sequences
from tests.engine.store.gguf_models import write_gguf

LLAMA3 = {
    "rope_type": "llama3", "rope_theta": 5000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}  # fmt: skip
LINEAR = {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}
YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 32}
IN_PART = {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5}
TWO_KINDS = {
    "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
    "full_attention": {"rope_type": "linear", "rope_theta": 10000.0, "factor": 8.0},
}
CASES: dict[str, tuple[str, str, dict[str, Any], dict[str, Any]]] = {
    "llama": ("llama", "llama", {}, {}),
    "llama-head-dim": ("llama-head-dim", "llama", {}, {}),
    "llama-3": ("llama", "llama", {"rope_parameters": LLAMA3}, {"rope.freq_base": 5000.0}),
    "llama-linear": (
        "llama", "llama", {"rope_parameters": LINEAR}, {"rope.scaling.type": "linear", "rope.scaling.factor": 4.0},
    ),
    "qwen2": ("qwen2", "qwen2", {}, {}),
    "qwen2-yarn": (
        "qwen2", "qwen2", {"rope_parameters": YARN},
        {"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0, "rope.scaling.original_context_length": 32},
    ),
    "qwen3": ("qwen3", "qwen3", {}, {}),
    "gemma2": ("gemma2", "gemma2", {}, {}),
    "gemma3": (
        "gemma3", "gemma3", {"num_hidden_layers": 6, "rope_parameters": TWO_KINDS, "query_pre_attn_scalar": 16},
        {"rope.freq_base": 10000.0, "rope.scaling.type": "linear", "rope.scaling.factor": 8.0},
    ),
    "phi3": ("phi3-window", "phi3", {}, {}),
    "phi3-in-part": ("phi3", "phi3", {"rope_parameters": IN_PART}, {"rope.dimension_count": 8}),
    "gpt2": ("gpt2", "gpt2", {}, {}),
}  # fmt: skip


def frequency_factors(module: Any) -> dict[str, Any]:
    """The RoPE factors of Llama 3 as stored in GGUF files."""
    if module.config.rope_parameters is not LLAMA3:
        return {}
    scaled, _ = ROPE_INIT_FUNCTIONS["llama3"](module.config, "cpu")
    plain = LLAMA3["rope_theta"] ** -(torch.arange(0, 16, 2) / 16)
    return {"rope_freqs.weight": (plain / scaled).numpy()}


@pytest.mark.parametrize("case", CASES)
def test_logits_are_those_of_the_model_in_the_file(case: str, tmp_path: Path) -> None:
    family, arch, options, metadata = CASES[case]
    module = build(family, **options)
    tensors = frequency_factors(module) if case == "llama-3" else {}
    write_gguf(tmp_path / "model.gguf", module, arch, metadata=metadata, tensors=tensors)
    convert_gguf(tmp_path / "model.gguf", tmp_path / "model")
    prompt = sequences()[3]
    module.set_attn_implementation("eager")
    with torch.inference_mode():
        wanted = module(torch.tensor([prompt])).logits[0, -1]
    [got] = Runner(load_model(tmp_path / "model", dtype="float32")).step([(SeqId(1), prompt, 0, len(prompt))])
    torch.testing.assert_close(got, wanted, **NEAR)


@pytest.mark.parametrize(("layers", "hidden_size", "head_dim", "scale"), [(46, 4608, 128, 144), (42, 3584, 256, 256)])
def test_the_largest_gemma_scales_its_queries_by_another_number(
    layers: int, hidden_size: int, head_dim: int, scale: int, tmp_path: Path
) -> None:
    """The models of 27 B and of 9 B differ, and no metadata key says so."""
    write_gguf(tmp_path / "model.gguf", build("gemma2"), "gemma2")
    heads = {128: 32, 256: 16}[head_dim]
    config = Gemma2Config(
        num_hidden_layers=layers, hidden_size=hidden_size, head_dim=head_dim, num_attention_heads=heads
    )
    complete_config(config, {"general.architecture": "gemma2"}, tmp_path / "model.gguf")
    assert config.query_pre_attn_scalar == scale


@pytest.mark.parametrize("kind", [GGMLQuantizationType.Q8_0, GGMLQuantizationType.Q4_0, GGMLQuantizationType.Q4_1])
def test_quantized_weights_are_found_again_as_they_were_stored(kind: GGMLQuantizationType, tmp_path: Path) -> None:
    write_gguf(tmp_path / "model.gguf", build("llama", tie_word_embeddings=True), "llama", kind=kind)
    convert_gguf(tmp_path / "model.gguf", tmp_path / "model", shard_bytes=1)
    quantize = quantize_int8 if kind is GGMLQuantizationType.Q8_0 else quantize_int4
    name = "model.layers.1.mlp.down_proj.weight"
    places = json.loads((tmp_path / "model/model.safetensors.index.json").read_bytes())["weight_map"]
    assert len(set(places.values())) == len(places), "a file for each"
    with safe_open(tmp_path / "model" / places[name], "pt") as tensors:
        weight = tensors.get_tensor(name)
    assert torch.equal(dequantize(*quantize(weight)), weight)


@pytest.mark.parametrize("family", ["llama", "gemma2", "gemma3", "phi3", "gpt2"])
def test_the_kernels_compute_with_the_integers_that_a_file_stores(
    family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if library.load() is None:
        pytest.skip("no kernels for this processor")
    monkeypatch.setenv("AICI_CACHE_DIR", str(tmp_path / "cache"))
    write_gguf(tmp_path / "model.gguf", build(family, query_pre_attn_scalar=16), family, kind=GGMLQuantizationType.Q4_0)
    convert_gguf(tmp_path / "model.gguf", tmp_path / "model")
    [prompt] = [prompt for prompt in sequences() if len(prompt) == 43]
    model = make_model(EngineConfig(model_dir=tmp_path / "model"), ComputeDevice("cpu", 16))
    assert isinstance(model, NativeModel)
    [packed] = (tmp_path / "cache/packed").iterdir()
    assert PackedWeights.read([packed]).config.weight_format is Format.INT4
    got, wanted = (
        Runner(each).step([(SeqId(1), prompt, 0, len(prompt))])[0]
        for each in (model, load_model(tmp_path / "model", dtype="float32"))
    )
    assert torch.nn.functional.cosine_similarity(got, wanted, 0) > 0.99


@pytest.mark.parametrize(
    ("family", "arch", "metadata", "tensors", "said"),
    [
        ("gemma", "gemma", {}, {}, "architecture gemma is not supported"),
        ("gpt_neox", "gptneox", {}, {}, "architecture gptneox is not supported"),
        ("llama", "llama", {"attention.sliding_window": 5}, {}, "sliding windows are not supported for llama"),
        ("llama", "llama", {"feed_forward_length": 160}, {}, "has another shape"),
        ("llama", "llama", {"block_count": 9}, {}, "is missing"),
        ("llama", "llama", {"block_count": 1 << 31}, {}, "2147483648 layers, but the file has 39 tensors"),
        ("llama", "llama", {"rope.dimension_count": 8}, {}, "partial rotary embeddings are not supported"),
        (
            "llama",
            "llama",
            {},
            {"blk.0.attn_q.bias": np.ones(64, np.float32)},
            r"blk\.0\.attn_q\.bias is not a parameter",
        ),
        ("llama", "llama", {"rope.scaling.type": "longrope", "rope.scaling.factor": 2.0}, {}, "longrope"),
        (
            "qwen2",
            "qwen2",
            {"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0, "rope.scaling.attn_factor": 0.5},
            {},
            "yarn, attn_factor",
        ),
        ("llama", "llama", {}, {"rope_freqs.weight": np.ones(8, np.float32) * 3}, "not those of Llama 3"),
        (
            "phi3",
            "phi3",
            {},
            {"rope_factors_long.weight": np.ones(8, np.float32), "rope_factors_short.weight": np.ones(8, np.float32)},
            "rope_factors_long",
        ),
    ],
)
def test_what_would_answer_wrongly_is_refused(
    family: str, arch: str, metadata: dict[str, Any], tensors: dict[str, Any], said: str, tmp_path: Path
) -> None:
    write_gguf(tmp_path / "model.gguf", build(family), arch, metadata=metadata, tensors=tensors)
    with pytest.raises(UsageError, match=said):
        convert_gguf(tmp_path / "model.gguf", tmp_path / "model")
    assert not (tmp_path / "model").exists()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("whole") / "model.gguf"
    write_gguf(path, build("llama", num_hidden_layers=1), "llama")
    return path.read_bytes()


def renamed(old: bytes, new: bytes) -> Callable[[bytes], bytes]:
    return lambda content: content.replace(old, new)


@pytest.mark.parametrize(
    ("damage", "said", "hint"),
    [
        (lambda _: b"", "the file is empty", "fetch the file again"),
        (lambda content: content[:28], "the file ends before the tensors begin", "fetch the file again"),
        (lambda content: content[: content.index(b"blk.0.ffn_up.weight")], "goes beyond the end", ""),
        (lambda content: content[:-1], r"output\.weight ends at byte (\d+) of \d+", "fetch the file again"),
        (
            renamed(b"blk.0.attn_q.weight", b"blk.0.attn_k.weight"),
            r"blk\.0\.attn_k\.weight occurs twice",
            "fetch the file again",
        ),
        (renamed(b"general.architecture", b"general.Architecture"), "the metadata name no architecture", ""),
    ],
    ids=["empty", "cut in its metadata", "cut in its table", "cut in its weights", "doubled", "of no architecture"],
)
def test_a_damaged_file_is_refused_with_what_is_so(
    damage: Callable[[bytes], bytes], said: str, hint: str, whole: bytes, tmp_path: Path
) -> None:
    (tmp_path / "model.gguf").write_bytes(damage(whole))
    with pytest.raises(UsageError, match=said) as error:
        convert_gguf(tmp_path / "model.gguf", tmp_path / "model")
    assert hint in error.value.hint
    assert [path.name for path in tmp_path.iterdir()] == ["model.gguf"]


def test_a_piece_of_a_model_is_refused_with_what_makes_it_whole(tmp_path: Path) -> None:
    writer = GGUFWriter(tmp_path / "model-00001-of-00002.gguf", "llama")
    writer.add_uint16("split.count", 2)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    with pytest.raises(UsageError, match="one piece of 2") as error:
        convert_gguf(tmp_path / "model-00001-of-00002.gguf", tmp_path / "model")
    assert "--merge" in error.value.hint


def test_a_disk_that_is_full_is_not_the_files_fault(whole: bytes, tmp_path: Path) -> None:
    """Shards of at most 64 KB stand for a large model."""
    (tmp_path / "model.gguf").write_bytes(whole)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, limits[1]))
    try:
        with pytest.raises(UnavailableError, match=re.escape(str(tmp_path))) as error:
            convert_gguf(tmp_path / "model.gguf", tmp_path / "model")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert "AICI_CACHE_DIR" in error.value.hint
    assert [path.name for path in tmp_path.iterdir()] == ["model.gguf"]
