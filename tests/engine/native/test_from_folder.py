"""What the engine reads from a model's files by itself is what transformers makes of them."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from aici_base.errors import UsageError
from aici_engine.config import Dtype
from aici_engine.model.load import load_model
from aici_engine.native.decoder_config import FORMATS
from aici_engine.native.from_folder import load_folder
from aici_engine.native.known_model import NotKnownError
from aici_engine.native.packed_weights import PackedWeights
from tests.engine.model import test_models
from tests.engine.native import test_native_model

KNOWN = ("llama", "llama-mha", "mistral", "qwen2", "qwen2-window", "qwen3")
VARIANTS = (
    *("llama-tied", "llama-one-head", "llama-wide-heads", "llama3-rotation", "llama-biases", "mistral"),
    *("qwen2-window", "qwen3"),
)


def check_equal(folder: Path, dtype: Dtype) -> None:
    got, wanted = load_folder(folder, dtype), PackedWeights.of(load_model(folder, dtype=dtype), FORMATS[dtype])
    assert replace(got.config, query_scale=0.0) == replace(wanted.config, query_scale=0.0)
    assert got.config.query_scale == pytest.approx(wanted.config.query_scale)
    assert {*got.tensors} == {*wanted.tensors}
    for name, array in got.tensors.items():
        other = wanted.tensors[name]
        assert array.dtype == other.dtype, name
        np.testing.assert_array_equal(array, other, err_msg=name)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8", "int4"])
@pytest.mark.parametrize("family", KNOWN)
def test_a_family_is_read_as_transformers_reads_it(family: str, dtype: Dtype, tmp_path: Path) -> None:
    test_models.build(family).save_pretrained(tmp_path)
    check_equal(tmp_path, dtype)


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_variant_is_read_as_transformers_reads_it(variant: str, tmp_path: Path) -> None:
    test_native_model.module_of(variant).save_pretrained(tmp_path)
    check_equal(tmp_path, "float32")


@pytest.mark.parametrize("stored", [torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8"])
def test_stored_formats(stored: torch.dtype, dtype: Dtype, tmp_path: Path) -> None:
    test_models.build("llama").to(stored).save_pretrained(tmp_path, max_shard_size="100KB")
    assert len([*tmp_path.glob("*.safetensors")]) > 1
    check_equal(tmp_path, dtype)


@pytest.mark.parametrize(
    "change",
    [
        {"rope_parameters": None, "rope_theta": 5000.0},
        {"rope_parameters": None, "rope_theta": 5000.0, "rope_scaling": {"type": "linear", "factor": 2.0}},
        {"eos_token_id": [2, 5, 99, -1]},
        {"hidden_act": "swish"},
        {"architectures": ["Other"], "something": "else"},
    ],
    ids=lambda change: " ".join(change),
)
def test_settings_mean_what_they_mean_to_transformers(change: dict[str, Any], tmp_path: Path) -> None:
    write(tmp_path, change)
    check_equal(tmp_path, "float32")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"model_type": "falcon"}, "its model_type is 'falcon'"),
        ({"hidden_act": "gelu"}, "its activation is 'gelu'"),
        ({"quantization_config": {"quant_method": "gptq"}}, "stored quantized"),
        ({"rope_parameters": {"rope_type": "yarn", "rope_theta": 1.0, "factor": 2.0}}, "the RoPE type is yarn"),
        ({"partial_rotary_factor": 0.5}, "rotates a part"),
        ({"hidden_size": None}, "its hidden_size is None"),
        ({"head_dim": 24}, "heads of 24 numbers"),
        ({"num_attention_heads": 4096, "num_key_value_heads": 1, "head_dim": None}, "4096 heads of 0 numbers"),
        ({"rope_parameters": None, "rope_scaling": "linear"}, "rope_scaling are no object"),
        ({"rope_parameters": None, "rope_scaling": [1]}, "rope_scaling are no object"),
        ({"rope_parameters": {"rope_theta": 10**400}}, "its rotation is not known"),
        ({"rope_parameters": {"rope_theta": 0}}, "not finite"),
        ({"rope_parameters": {"rope_type": "linear", "rope_theta": 1e4, "factor": 0}}, "not finite"),
        ({"eos_token_id": True}, "its eos_token_id is True"),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value),
)
def test_what_is_not_known_is_left_to_transformers(change: dict[str, Any], said: str, tmp_path: Path) -> None:
    write(tmp_path, change)
    with pytest.raises(NotKnownError, match=said):
        load_folder(tmp_path, "float32")


@pytest.mark.parametrize("is_there", [False, True], ids=["missing", "another shape"])
def test_a_missing_tensor_is_an_error_with_its_name(is_there: bool, tmp_path: Path) -> None:
    write(tmp_path, {})
    tensors = load_file(tmp_path / "model.safetensors")
    name = "model.layers.1.mlp.up_proj.weight"
    del tensors[name]
    save_file(tensors | ({name: torch.zeros(3, 3)} if is_there else {}), tmp_path / "model.safetensors")
    with pytest.raises(UsageError, match=f"1 tensors are missing or have the wrong shape, {name} among them"):
        load_folder(tmp_path, "auto")


def test_tensors_with_other_names_are_left_to_transformers(tmp_path: Path) -> None:
    write(tmp_path, {})
    tensors = load_file(tmp_path / "model.safetensors")
    renamed = {name.removeprefix("model."): tensor for name, tensor in tensors.items()}
    assert "lm_head.weight" in renamed
    save_file(renamed, tmp_path / "model.safetensors", {"format": "pt"})
    with pytest.raises(NotKnownError, match="its tensors have other names"):
        load_folder(tmp_path, "float32")


def write(folder: Path, change: dict[str, Any]) -> None:
    test_models.build("llama").save_pretrained(folder)
    (folder / "generation_config.json").unlink()
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
