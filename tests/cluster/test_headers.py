"""Sizes from headers agree with the weights in memory."""

import json
import struct
from pathlib import Path
from typing import Any

import gguf
import pytest
import torch
from safetensors.torch import save_file

from aici_base.errors import UsageError
from aici_engine.cluster.headers import WEIGHT_BYTES, ModelSizes
from aici_engine.config import Dtype, EngineConfig, KVCacheDtype
from aici_engine.model.compute_device import choose_device
from aici_engine.model.load_stage import stage_tensors
from aici_engine.model.stage_range import LayerRange
from aici_engine.model.tensor_source import FolderSource
from aici_engine.native.backend import make_model
from aici_engine.native.model import NativeModel
from tests.engine.model.test_models import build
from tests.engine.store.gguf_models import write_gguf
from tests.engine.support import write_tiny_model
from tests.support.model import default_model_dir


@pytest.mark.parametrize(("dtype", "kv_cache_dtype"), [("int8", "auto"), ("int4", "auto"), ("int4", "int8")])
def test_the_default_model_is_as_large_as_its_headers_say(dtype: Dtype, kv_cache_dtype: KVCacheDtype) -> None:
    config = EngineConfig(model_dir=default_model_dir(), dtype=dtype, device="cpu", kv_cache_dtype=kv_cache_dtype)
    model = make_model(config, choose_device(config, has_gpu=False))
    assert isinstance(model, NativeModel)
    sizes = ModelSizes.of(config.model_dir)
    assert sizes.weight_bytes(sizes.whole, dtype) == pytest.approx(model.weight_bytes, rel=0.001)
    assert sizes.token_bytes(sizes.whole, dtype, kv_cache_dtype) == model.token_bytes
    assert (sizes.num_layers, sizes.vocab_size, sizes.context) == (30, model.vocab_size, model.context)


def test_parts_make_up_the_whole() -> None:
    sizes = ModelSizes.of(default_model_dir())
    near, far = LayerRange(0, 12, embedding=True, head=False), LayerRange(12, 30, embedding=False, head=True)
    for dtype in WEIGHT_BYTES:
        twice = sizes.weight_bytes(LayerRange(0, 0, embedding=True, head=False), dtype)
        both = sizes.weight_bytes(near, dtype) + sizes.weight_bytes(far, dtype)
        assert both == sizes.weight_bytes(sizes.whole, dtype) + twice  # a tied embedding is at both ends
        assert sizes.read_bytes(near, dtype) + sizes.read_bytes(far, dtype) == sizes.read_bytes(sizes.whole, dtype)
    assert sorted({*sizes.tensors(near), *sizes.tensors(far)}) == sizes.tensors(sizes.whole)
    assert set(sizes.tensors(near)) & set(sizes.tensors(far)) == {"model.embed_tokens.weight"}


def header_only(path: Path, tensors: dict[str, tuple[str, list[int], int]]) -> None:
    """A safetensors file with a header, and a hole in place of the data."""
    header, at = {}, 0
    for name, (dtype, shape, size) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + at)


def write_large_llama(folder: Path, *, hidden: int = 2048, layers: int = 14) -> None:
    """A Llama of 1.5 GB in bf16, in two files without data."""
    tensors = {
        "model.embed_tokens.weight": [32000, hidden],
        "lm_head.weight": [32000, hidden],
        "model.norm.weight": [hidden],
    }
    for i in range(layers):
        ends = {
            "self_attn.q_proj": hidden,
            "self_attn.k_proj": 512,
            "self_attn.v_proj": 512,
            "self_attn.o_proj": hidden,
        }
        tensors |= {f"model.layers.{i}.{name}.weight": [rows, hidden] for name, rows in ends.items()}
        tensors |= {f"model.layers.{i}.mlp.{name}_proj.weight": [5632, hidden] for name in ("gate", "up")}
        tensors[f"model.layers.{i}.mlp.down_proj.weight"] = [hidden, 5632]
        tensors |= {f"model.layers.{i}.{name}_layernorm.weight": [hidden] for name in ("input", "post_attention")}
    full = {name: ("BF16", shape, 2 * torch.Size(shape).numel()) for name, shape in tensors.items()}
    names = sorted(full)
    for number, part in enumerate((names[:50], names[50:]), 1):
        header_only(folder / f"model-{number:05}-of-00002.safetensors", {name: full[name] for name in part})
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": hidden, "torch_dtype": "bfloat16",
        "intermediate_size": 5632, "num_hidden_layers": layers, "num_attention_heads": 32, "num_key_value_heads": 8,
        "max_position_embeddings": 4096, "tie_word_embeddings": False,
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))


def test_shards_without_data_are_enough(tmp_path: Path) -> None:
    write_large_llama(tmp_path)
    sizes = ModelSizes.of(tmp_path)
    assert (sizes.name, sizes.dtype, sizes.tied, sizes.num_layers) == ("LlamaForCausalLM", "bfloat16", False, 14)
    stored = sum(file.stat().st_size for file in tmp_path.glob("*.safetensors"))
    assert stored == pytest.approx(1.5e9, rel=0.05)
    assert sizes.weight_bytes(sizes.whole, "bfloat16") == pytest.approx(stored, rel=0.001)
    assert sizes.token_bytes(sizes.whole, "bfloat16") == 14 * 2 * 8 * 64 * 2
    embedding = 32000 * 2048 * 2
    assert sizes.weight_bytes(sizes.whole, "bfloat16") - sizes.read_bytes(sizes.whole, "bfloat16") == embedding


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [
        (gguf.GGMLQuantizationType.F32, "float32"),
        (gguf.GGMLQuantizationType.Q8_0, "int8"),
        (gguf.GGMLQuantizationType.Q4_0, "int4"),
    ],
)
@pytest.mark.parametrize(("family", "arch"), [("llama", "llama"), ("gemma3", "gemma3"), ("gpt2", "gpt2")])
def test_a_gguf_file_has_the_sizes_of_the_folder(
    tmp_path: Path, family: str, arch: str, kind: gguf.GGMLQuantizationType, dtype: Dtype
) -> None:
    module = build(family)
    write_gguf(tmp_path / "model.gguf", module, arch, kind=kind)
    module.save_pretrained(tmp_path)
    from_file, from_folder = ModelSizes.of(tmp_path / "model.gguf"), ModelSizes.of(tmp_path)
    assert from_file.dtype == dtype
    for each in ("tied", "kv_numbers", "hidden_size", "intermediate_size", "vocab_size"):
        assert getattr(from_file, each) == getattr(from_folder, each), each
    for part in (from_file.whole, LayerRange(0, 1, embedding=True, head=False)):
        assert from_file.weight_bytes(part, dtype) == from_folder.weight_bytes(part, dtype)


@pytest.mark.parametrize("family", ["llama", "gemma3-pictures", "gpt2", "gpt_neox", "gpt_oss", "mixtral", "phi3"])
def test_a_range_needs_the_tensors_that_a_stage_loads(tmp_path: Path, family: str) -> None:
    build(family).save_pretrained(tmp_path)
    sizes, source = ModelSizes.of(tmp_path), FolderSource(tmp_path)
    n = sizes.num_layers
    for part in (
        sizes.whole,
        LayerRange(0, 1, True, False),
        LayerRange(1, n, False, True),
        LayerRange(n, n, False, True),
    ):
        assert sizes.tensors(part) == stage_tensors(source, part), part


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is damaged"),
        (struct.pack("<Q", 1 << 60), "is damaged: a header of"),
        (struct.pack("<Q", 2) + b"[]", "is damaged"),
        (struct.pack("<Q", 2) + b"{}", "holds no layers of a decoder"),
    ],
)
def test_damaged_files_are_refused(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(content)
    with pytest.raises(UsageError, match=message):
        ModelSizes.of(tmp_path)


def test_a_missing_layer_is_refused(tmp_path: Path) -> None:
    write_tiny_model(tmp_path)
    config: dict[str, Any] = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 5}))
    with pytest.raises(UsageError, match="has 2 of 5 layers"):
        ModelSizes.of(tmp_path)


def test_other_modalities_and_buffers_do_not_count(tmp_path: Path) -> None:
    layer = {"model.layers.0.mlp.up_proj.weight": torch.zeros(4, 4), "h.0.attn.bias": torch.zeros(1, 1, 8, 8)}
    save_file(
        {
            **layer,
            "model.embed_tokens.weight": torch.zeros(8, 4),
            "vision_tower.encoder.layers.7.weight": torch.zeros(9, 9),
        },
        tmp_path / "model.safetensors",
    )
    (tmp_path / "config.json").write_text(json.dumps({"num_hidden_layers": 1, "hidden_size": 4}))
    sizes = ModelSizes.of(tmp_path)
    assert sizes.tensors(sizes.whole) == ["model.embed_tokens.weight", "model.layers.0.mlp.up_proj.weight"]
