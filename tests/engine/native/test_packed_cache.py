"""Packed weights are read from the cache, and never belong to another model."""

import os
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from aici_base.ids import SeqId, TokenId
from aici_engine.cache.ids import PageId
from aici_engine.config import Dtype, EngineConfig
from aici_engine.model.compute_device import ComputeDevice
from aici_engine.model.quantize import is_grouped
from aici_engine.native import packed_cache
from aici_engine.native.backend import make_model
from aici_engine.native.bindings import Format
from aici_engine.native.model import NativeModel
from aici_engine.step_input import Chunk
from tests.engine.model.quantize_support import dequantize, quantize_int4
from tests.engine.native.test_native_model import ABLE, module_of

pytestmark = pytest.mark.skipif(not ABLE, reason="no kernels for this processor")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("AICI_CACHE_DIR", str(tmp_path / "cache"))
    module_of("llama").save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def logits(folder: Path, dtype: Dtype) -> torch.Tensor:
    model = make_model(EngineConfig(model_dir=folder, dtype=dtype), ComputeDevice("cpu", 16))
    assert isinstance(model, NativeModel)
    storage = model.make_storage(num_pages=2, page_size=16)
    tokens = [TokenId(token) for token in range(3, 20)]
    pages = [PageId(1), PageId(0)]
    return torch.as_tensor(model.forward(storage, [Chunk(SeqId(1), tokens, 0, pages, len(tokens))])).clone()


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder.parent / "cache/packed").glob("*"))


@pytest.mark.parametrize("dtype", ["int8", "int4"])
def test_what_is_read_is_what_was_packed(folder: Path, dtype: Dtype) -> None:
    assert packed_cache.load(folder, dtype) is None
    first = logits(folder, dtype)
    packed = packed_cache.load(folder, dtype)
    assert packed is not None
    assert packed.config.eos_tokens == [2]
    assert torch.equal(logits(folder, dtype), first)
    assert len(files(folder)) == 1


def test_a_model_that_changed_is_packed_again_and_the_old_file_goes(folder: Path) -> None:
    first = logits(folder, "int8")
    [old] = files(folder)
    weights = load_file(folder / "model.safetensors")
    weights["model.norm.weight"] *= 2
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    assert not torch.equal(logits(folder, "int8"), first)
    [new] = files(folder)
    assert new != old


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: content[:-100],
        lambda content: content[4096:],
        lambda content: b"",
        lambda content: content.replace(b"before_mlp", b"before_map"),
        lambda content: content.replace(b'"hidden_size": 64', b'"hidden_size": 96'),
        lambda content: bytes(len(content)),
    ],
    ids=["cut", "its beginning lost", "empty", "another name", "another hidden size", "zeros"],
)
def test_a_damaged_file_is_made_again(folder: Path, damage: Callable[[bytes], bytes]) -> None:
    first = logits(folder, "int8")
    [name] = files(folder)
    path = folder.parent / "cache/packed" / name
    path.write_bytes(damage(path.read_bytes()))
    assert packed_cache.load(folder, "int8") is None
    assert torch.equal(logits(folder, "int8"), first)
    assert packed_cache.load(folder, "int8") is not None


def test_what_cannot_be_removed_is_no_failure_and_what_a_killed_process_left_goes(folder: Path) -> None:
    logits(folder, "int8")
    [name] = files(folder)
    packed = folder.parent / "cache/packed"
    (packed / name).unlink()
    old, new = (packed / f".{name}.{number}.tmp" for number in (1, 2))
    for left in (old, new):
        left.touch()
    os.utime(old, (0, 0))
    (packed / f"{name[:-20]}zz.bin").mkdir()
    logits(folder, "int8")
    assert name in files(folder)
    assert new.exists()
    assert not old.exists()


def test_auto_looks_at_every_matrix(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    on_grid = {name: dequantize(*quantize_int4(each)) for name, each in weights.items() if is_grouped(each)}
    save_file(weights | on_grid, folder / "model.safetensors", {"format": "pt"})
    logits(folder, "auto")
    packed = packed_cache.load(folder, "auto")
    assert packed is not None
    assert packed.config.weight_format is Format.INT4
    # One matrix without a grid.
    name = "model.layers.1.mlp.up_proj.weight"
    save_file(weights | on_grid | {name: weights[name]}, folder / "model.safetensors", {"format": "pt"})
    logits(folder, "auto")
    assert packed_cache.load(folder, "auto") is None  # float weights are not cached


def test_floats_are_not_kept_and_another_folder_is_another_model(folder: Path) -> None:
    logits(folder, "float32")
    assert files(folder) == []
    logits(folder, "int8")
    other = folder.parent / "elsewhere/model"
    shutil.copytree(folder, other)
    assert packed_cache.load(other, "int8") is None


def test_what_nobody_reads_for_a_month_goes(folder: Path) -> None:
    logits(folder, "int8")
    packed = folder.parent / "cache/packed"
    [used] = packed.iterdir()
    unused = packed / "model-0-int8-0.bin"
    unused.touch()
    long_ago = time.time() - 40 * 24 * 3600
    for path in (used, unused):
        os.utime(path, (long_ago, long_ago))
    logits(folder, "int8")
    logits(folder, "int4")
    assert unused.name not in files(folder)
    assert len(files(folder)) == 2


@pytest.mark.skipif(not Path("/sys/kernel/mm/transparent_hugepage").is_dir(), reason="a kernel without huge pages")
def test_weights_lie_where_the_kernel_may_use_huge_pages(folder: Path) -> None:
    logits(folder, "int8")
    packed = packed_cache.load(folder, "int8")
    assert packed is not None
    address = next(iter(packed.tensors.values())).ctypes.data
    maps = re.split(r"^([0-9a-f]+)-([0-9a-f]+) ", Path("/proc/self/smaps").read_text(), flags=re.MULTILINE)[1:]
    [text] = [
        text
        for first, end, text in zip(maps[::3], maps[1::3], maps[2::3], strict=True)
        if int(first, 16) <= address < int(end, 16)
    ]
    flags = text.split("VmFlags:")[1].split("\n")[0].split()
    assert "hg" in flags
    assert "sh" not in flags
