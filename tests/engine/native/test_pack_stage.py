"""Weights packed a few layers at a time are those of the whole model, and every layer is packed once on a machine."""

from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.torch import load_file, save_file

from aici_base.errors import UsageError
from aici_engine.config import Dtype
from aici_engine.model.load import load_model
from aici_engine.model.stage_range import LayerRange
from aici_engine.model.tensor_source import FolderSource
from aici_engine.native import torch_stage
from aici_engine.native.decoder_config import FORMATS
from aici_engine.native.pack_stage import pack_stage
from aici_engine.native.packed_weights import PackedWeights
from tests.engine.model.test_models import NATIVE, build
from tests.engine.model.test_stages import RecordedSource, ranges
from tests.engine.native.test_native_stage import cut

LAYERS_1_TO_3 = LayerRange(1, 3, embedding=False, head=False)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("AICI_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache/packed"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    build("llama").save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def check_equal(got: PackedWeights, wanted: PackedWeights) -> None:
    """A range need not know of what it lacks."""
    for field in fields(got.config):
        value = getattr(got.config, field.name)
        assert value == getattr(wanted.config, field.name) or not value
    assert got.config.part == wanted.config.part
    assert {*got.tensors} == {*wanted.tensors}
    for name, tensor in got.tensors.items():
        assert np.array_equal(tensor, wanted.tensors[name]), name


@pytest.mark.parametrize(
    ("family", "dtype"),
    [
        *((family, "bfloat16") for family in sorted(NATIVE)),
        *(("llama", dtype) for dtype in ("float32", "int8", "int4")),
    ],
)
def test_parts_are_those_of_the_whole(
    family: str, dtype: Dtype, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch_stage, "_LOADED_BYTES", 1 << 18)  # one or two layers
    build(family).save_pretrained(tmp_path / "model")
    whole = PackedWeights.of(load_model(tmp_path / "model", dtype=dtype), FORMATS[dtype])
    source = FolderSource(tmp_path / "model")
    num_layers = len(whole.config.windows)
    everything = LayerRange(0, num_layers, embedding=True, head=True)
    assert pack_stage(source, everything, dtype).config == replace(whole.config, context=0, eos_tokens=[])
    for part in (everything, *ranges(num_layers, [1], empty_ends=True)):
        check_equal(pack_stage(source, part, dtype), cut(whole, part))


@pytest.mark.parametrize("dtype", ["int8", "int4"])
def test_a_stage_with_other_layers_packs_the_new_ones(folder: Path, dtype: Dtype) -> None:
    first, again, other = (RecordedSource(folder) for _ in range(3))
    packed = pack_stage(first, LAYERS_1_TO_3, dtype)
    assert {name.split(".")[2] for name in first.reads} == {"1", "2"}
    check_equal(pack_stage(again, LAYERS_1_TO_3, dtype), packed)
    assert again.reads == []
    pack_stage(other, LayerRange(0, 4, embedding=False, head=True), dtype)
    assert {name.split(".")[2] for name in other.reads if ".layers." in name} == {"0", "3"}


def test_floats_are_not_cached(folder: Path, cache: Path) -> None:
    pack_stage(FolderSource(folder), LAYERS_1_TO_3, "bfloat16")
    assert not cache.exists()


def test_a_model_that_changed_is_packed_again(folder: Path) -> None:
    before = pack_stage(FolderSource(folder), LAYERS_1_TO_3, "int8")
    weights = load_file(folder / "model.safetensors")
    weights["model.layers.2.mlp.up_proj.weight"] *= 2
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    after = pack_stage(FolderSource(folder), LAYERS_1_TO_3, "int8")
    changed = {name for name, tensor in before.tensors.items() if not np.array_equal(tensor, after.tensors[name])}
    assert changed == {"layers.2.gate_up.scales"}


def test_a_damaged_file_is_packed_again(folder: Path, cache: Path) -> None:
    packed = pack_stage(FolderSource(folder), LAYERS_1_TO_3, "int4")
    one, other = sorted(cache.iterdir())
    one.write_bytes(one.read_bytes()[:-100])
    source = RecordedSource(folder)
    check_equal(pack_stage(source, LAYERS_1_TO_3, "int4"), packed)
    assert {name.split(".")[2] for name in source.reads} == {"1"}
    other.write_bytes(b"")
    check_equal(pack_stage(source, LAYERS_1_TO_3, "int4"), packed)


def test_a_cache_that_cannot_be_written_is_done_without(folder: Path, cache: Path) -> None:
    packed = pack_stage(FolderSource(folder), LAYERS_1_TO_3, "int8")
    for path in cache.iterdir():
        path.unlink()
    cache.rmdir()
    cache.write_text("a file in the place of the folder")
    check_equal(pack_stage(FolderSource(folder), LAYERS_1_TO_3, "int8"), packed)


def test_what_the_kernels_cannot_run_is_refused(tmp_path: Path) -> None:
    build("llama-head-dim").save_pretrained(tmp_path / "model")
    with pytest.raises(UsageError, match="head_dim is 24"):
        pack_stage(FolderSource(tmp_path / "model"), LAYERS_1_TO_3, "int8")
