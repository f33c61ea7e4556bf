"""The choice of the compute device, on machines with and without a GPU."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from aici_base.errors import UsageError
from aici_engine.config import EngineConfig, VllmSettings
from aici_engine.engine import Engine
from aici_engine.model.compute_device import ComputeDevice, choose_device

CPU, GPU = ComputeDevice("cpu", 16), ComputeDevice("cuda", 256)


@pytest.mark.parametrize(
    ("asked", "without", "with_gpu"),
    [
        ({}, CPU, GPU),
        ({"device": "cpu"}, CPU, CPU),
        ({"dtype": "bfloat16"}, CPU, GPU),
        ({"dtype": "int8"}, CPU, CPU),
        ({"dtype": "int4"}, CPU, CPU),
        ({"page_size": 32}, ComputeDevice(CPU.device, 32), ComputeDevice(GPU.device, 32)),
    ],
)
def test_auto_is_a_gpu_that_can_compute_with_the_weights(
    asked: Any, without: ComputeDevice, with_gpu: ComputeDevice
) -> None:
    config = EngineConfig(model_dir=Path("model"), **asked)
    assert choose_device(config, has_gpu=False) == without
    assert choose_device(config, has_gpu=True) == with_gpu


def test_a_gpu_that_is_not_there_is_an_error_that_says_what_is(tiny_model: Path) -> None:
    config = EngineConfig(model_dir=tiny_model, device="cuda")
    assert choose_device(config, has_gpu=True) == GPU
    assert choose_device(replace(config, dtype="int4"), has_gpu=True) == GPU
    with pytest.raises(UsageError, match="torch sees no GPU") as caught:
        choose_device(config, has_gpu=False)
    assert torch.__version__ in str(caught.value.hint)
    if not torch.cuda.is_available():
        with pytest.raises(UsageError, match="torch sees no GPU"):
            Engine(config)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"device": "gpu"}, "device 'gpu' is not known"),
        ({"device": "cuda", "dtype": "int8"}, "int8 weights run on the CPU only"),
        ({"device": "cuda", "dtype": "int4", "stages": ("tcp://a:1#k",)}, "int4 weights on a GPU are not implemented"),
        ({"page_size": 0}, "page_size must be at least 1"),
        ({"kv_cache_dtype": "fp8"}, "kv_cache_dtype 'fp8' is not known"),
        ({"kv_cache_dtype": "int8", "device": "cuda"}, "keys and values in int8 run on the CPU only"),
        ({"kv_cache_dtype": "int8", "stages": ("tcp://a:1#k",)}, "not implemented for a model that is divided"),
        ({"kv_cache_dtype": "int8", "vllm": VllmSettings()}, "kv_cache_dtype has no effect with vLLM"),
        ({"speculate": "some"}, "speculate 'some' is not known"),
        ({"speculate": "ngram", "device": "cuda"}, "drafts need the kernels, which run on the CPU only"),
        ({"speculate": "ngram", "stages": ("tcp://a:1#k",)}, "drafts are not implemented for a model that is divided"),
        ({"speculate": "ngram", "nodes": ("tcp://a:1#k",)}, "drafts are not implemented for a model that is divided"),
        ({"speculate": "ngram", "ray_address": "a:1"}, "drafts are not implemented for a model that is divided"),
        ({"speculate": "ngram", "vllm": VllmSettings()}, "speculate has no effect with vLLM"),
        ({"draft_dtype": "int4"}, "draft_dtype has no effect without a draft model"),
        ({"draft_model": Path("d"), "draft_dtype": "int2"}, "draft_dtype 'int2' is not known"),
        ({"draft_model": Path("d"), "device": "cuda"}, "drafts need the kernels, which run on the CPU only"),
        ({"draft_model": Path("d"), "stages": ("tcp://a:1#k",)}, "drafts are not implemented for a model that is"),
        ({"draft_model": Path("d"), "nodes": ("tcp://a:1#k",)}, "drafts are not implemented for a model that is"),
        ({"draft_model": Path("d"), "ray_address": "a:1"}, "drafts are not implemented for a model that is divided"),
        ({"draft_model": Path("d"), "vllm": VllmSettings()}, "draft_model has no effect with vLLM"),
    ],
)
def test_what_cannot_be_is_refused(asked: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        EngineConfig(model_dir=Path("model"), **asked)


@pytest.mark.parametrize(
    "asked", [{"device": "cuda"}, {"stages": ("tcp://a:1#k",)}, {"nodes": ("tcp://a:1#k",)}, {"vllm": VllmSettings()}]
)
def test_drafts_where_possible_are_refused_nowhere(asked: Any) -> None:
    assert EngineConfig(model_dir=Path("model"), speculate="auto", **asked).speculate == "auto"


def test_there_is_memory() -> None:
    assert CPU.free_bytes() > 0
