"""Load a model by transformers: for families that the C decoder does not know, for GPUs, and to pack weights."""

import logging
from collections.abc import Iterator
from typing import Any

import numpy.typing as npt
import torch

from aici_engine.config import Dtype, EngineConfig
from aici_engine.fusion import can_fuse
from aici_engine.model.compute_device import ComputeDevice
from aici_engine.model.fused_layers import fuse_layers
from aici_engine.model.huggingface_stage import HuggingFaceStage
from aici_engine.model.interface import Model
from aici_engine.model.layer_range import FAMILIES
from aici_engine.model.load import align, load_model
from aici_engine.model.round_weights import round_weights
from aici_engine.model.torch_tensors import to_numpy
from aici_engine.model_files import read_settings
from aici_engine.native import packed_cache
from aici_engine.native.decoder_config import FORMATS
from aici_engine.native.linear import linears, use_integers
from aici_engine.native.model import NativeModel
from aici_engine.native.number_format import smallest_lossless, stored_dtype
from aici_engine.native.packed_weights import PackedWeights
from aici_engine.native.paged_attention import PagedKernel
from aici_engine.native.supported import unsupported_reason
from aici_engine.native.thread_pool import ThreadPool

_log = logging.getLogger(__name__)


def make_torch_model(config: EngineConfig, compute: ComputeDevice, pool: ThreadPool | None) -> Model:
    """Load the model of `config.model_dir` by transformers. With a `pool`, the kernels run the model, or parts of it.

    Raises UsageError if the folder holds no decoder that the engine can run.
    """
    if config.num_threads is not None:
        torch.set_num_threads(config.num_threads)
    stored = stored_dtype(read_settings(config.model_dir / "config.json"))
    dtype = stored if config.dtype == "auto" else config.dtype
    kernel = None if pool is None else PagedKernel(pool)
    model = load_model(
        config.model_dir, dtype=dtype, device=torch.device(compute.device), kernel=kernel, lora=config.lora
    )
    if not compute.on_cpu:
        if can_fuse(model.device) and model.name in FAMILIES:
            fuse_layers(model.module)
        return model
    if kernel is None or pool is None:
        _log.info("torch runs the model: no native kernels for this processor")
        align(model.module)
        use_integers_in(model, dtype, None, page_size=compute.page_size)
        return model
    if config.dtype == "auto":
        dtype = smallest_lossless(lambda: matrices_of(model.module), dtype)
    why = unsupported_reason(model, page_size=compute.page_size)
    if why is None:
        packed = PackedWeights.of(model, FORMATS[dtype])
        if config.lora is None:  # the cache knows a model by its folder
            packed_cache.save(packed, config.model_dir, config.dtype)
        return NativeModel(packed, pool, config.kv_cache_dtype)
    _log.info("the native kernels run only parts of the model: %s", why)
    align(model.module)
    use_integers_in(model, dtype, pool, page_size=compute.page_size)
    return model


def use_integers_in(stage: HuggingFaceStage, dtype: Dtype, pool: ThreadPool | None, *, page_size: int) -> None:
    """Compute int8 or int4 weights in a transformers module, without kernels as floats with the same values."""
    if dtype not in ("int8", "int4"):
        return
    if pool is None:
        round_weights(stage.module, bits=8 if dtype == "int8" else 4)
        return
    use_integers(stage.module, FORMATS[dtype], pool)
    kernel = PagedKernel(pool)
    if page_size % kernel.page_size == 0 and all(map(kernel.serves, stage.layers)):
        stage.dtype = torch.bfloat16  # number type of the cache, as in NativeModel


def matrices_of(module: Any) -> Iterator[npt.NDArray[Any]]:
    """Yield the matrices of a transformers model, without the head."""
    head = module.get_output_embeddings()
    for _, _, part, weight in linears(module):
        if part is not head:
            yield to_numpy(weight)
