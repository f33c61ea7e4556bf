"""Stages of a folder against the model of the same folder, as the engine makes both."""

import json
from pathlib import Path

import pytest
import torch

from aici_base.errors import UnavailableError, UsageError
from aici_engine.config import Dtype, EngineConfig
from aici_engine.model.compute_device import ComputeDevice
from aici_engine.model.round_weights import round_weights
from aici_engine.model.stage_range import LayerRange
from aici_engine.model.tensor_source import FolderSource
from aici_engine.native.backend import make_model
from aici_engine.native.stage_backend import StageSpec, decide, make_stage
from aici_engine.native.stage_source import describe
from aici_engine.native.supported import FAMILIES as NATIVE_CLASSES
from tests.engine.model.test_models import FAMILIES, PAGE_SIZE, build, falcon, pool
from tests.engine.model.test_stages import RecordedSource, ranges, run_stages, run_whole

CPU = ComputeDevice("cpu", PAGE_SIZE)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AICI_CACHE_DIR", str(tmp_path / "cache"))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8", "int4"])
@pytest.mark.parametrize("family", FAMILIES)
def test_stages_compute_the_bits_of_the_engines_model(family: str, dtype: Dtype, tmp_path: Path) -> None:
    is_native = compare(family, dtype, tmp_path).backend == "native"
    assert is_native == (
        describe(FolderSource(tmp_path / "model")).name in NATIVE_CLASSES and family != "llama-head-dim"
    )


@pytest.mark.parametrize("dtype", ["float32", "int8", "int4"])
@pytest.mark.parametrize("family", ["llama", "gemma3", "gpt2", "mixtral"])
def test_stages_without_kernels_do_so_too(
    family: str, dtype: Dtype, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AICI_NATIVE", "off")
    assert compare(family, dtype, tmp_path).backend == "torch"


def compare(family: str, dtype: Dtype, folder: Path) -> StageSpec:
    """Compare two and four stages with the engine's model."""
    build(family).save_pretrained(folder / "model")
    config = EngineConfig(model_dir=folder / "model", dtype=dtype, num_threads=2)
    wanted = run_whole(make_model(config, CPU))
    source = FolderSource(config.model_dir)
    spec = decide(source, config, CPU)
    num_layers = describe(source).num_layers
    for parts in (ranges(num_layers, [1]), ranges(num_layers, [1], empty_ends=True)):
        got = run_stages([make_stage(source, part, spec) for part in parts])
        for one, other in zip(wanted, got, strict=True):
            assert torch.equal(one, other)
    return spec


def test_a_window_longer_than_any_context_is_none(tmp_path: Path) -> None:
    build("mistral").save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    settings, found = json.loads(path.read_text()), []
    for window in (None, (1 << 32) + 1, (1 << 32) - 1):
        path.write_text(json.dumps(settings | {"sliding_window": window}))
        config = EngineConfig(model_dir=tmp_path, dtype="float32", num_threads=2)
        found.append(run_whole(make_model(config, CPU)))
    for whole, one, other in zip(*found, strict=True):
        assert torch.equal(whole, one)
        assert torch.equal(whole, other)


def test_the_number_format_of_float_weights_is_decided_by_one_layer(tmp_path: Path) -> None:
    build("llama").save_pretrained(tmp_path / "model")
    source = RecordedSource(tmp_path / "model")
    spec = decide(source, EngineConfig(model_dir=source.folder), CPU)
    assert spec.dtype == "float32"
    assert {name.split(".")[2] for name in source.reads} == {"0"}


@pytest.mark.parametrize(
    ("family", "bits", "dtype"), [("llama", 4, "int4"), ("llama", 8, "int8"), ("gemma", 8, "int8")]
)
def test_the_number_format_of_rounded_weights_needs_all_layers(
    family: str, bits: int, dtype: Dtype, tmp_path: Path
) -> None:
    module = build(family)
    round_weights(module, bits=bits)
    module.save_pretrained(tmp_path / "model")
    source = RecordedSource(tmp_path / "model")
    config = EngineConfig(model_dir=source.folder)
    assert decide(source, config, CPU).dtype == dtype
    assert {name.split(".")[2] for name in source.reads} == {"0", "1", "2", "3"}
    known = len(source.reads)
    assert decide(source, config, CPU).dtype == dtype
    # The format is remembered. Of a family that transformers loads, a layer is looked at.
    assert {name.split(".")[2] for name in source.reads[known:]} == ({"0"} if family == "gemma" else set())


def test_a_stage_that_cannot_run_the_kernels_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build("llama").save_pretrained(tmp_path / "model")
    source, part = FolderSource(tmp_path / "model"), LayerRange(0, 1, embedding=True, head=False)
    with pytest.raises(UnavailableError, match="the kernels, which do not run on this machine's cuda"):
        make_stage(source, part, StageSpec("float32", "native", "cuda", PAGE_SIZE))
    monkeypatch.setenv("AICI_NATIVE", "off")
    with pytest.raises(UnavailableError, match="the kernels, which do not run on this machine's cpu"):
        make_stage(source, part, StageSpec("float32", "native", "cpu", PAGE_SIZE))


def test_packed_matrices_count_as_weights(tmp_path: Path) -> None:
    build("phi").save_pretrained(tmp_path / "model")
    source, part = FolderSource(tmp_path / "model"), LayerRange(0, 4, embedding=False, head=False)
    pool()
    sizes = [
        make_stage(source, part, StageSpec(dtype, "torch", "cpu", PAGE_SIZE)).weight_bytes
        for dtype in ("float32", "int8", "int4")
    ]
    matrices = 4 * (2 * 64 * 64 + 2 * 64 * 32 + 2 * 64 * 96)  # weights of four layers
    assert [size - sizes[0] for size in sizes[1:]] == pytest.approx([-2.9375 * matrices, -3.375 * matrices], rel=0.01)


def test_a_family_without_a_proof_is_refused_by_name(tmp_path: Path) -> None:
    falcon().save_pretrained(tmp_path / "model")
    source = FolderSource(tmp_path / "model")
    with pytest.raises(UsageError, match="FalconForCausalLM cannot run in stages: "):
        decide(source, EngineConfig(model_dir=source.folder, dtype="bfloat16"), CPU)
