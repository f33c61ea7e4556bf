"""Choose the implementation of a model: the C decoder if possible, else transformers on torch.

Adding a model family. Any decoder whose attention goes through transformers' AttentionInterface runs without a change
here. To run a family on the C decoder:

1. Add the prefix of the transformers class (`Llama` for `LlamaForCausalLM`) to `FAMILIES` in `supported.py`.
2. If the modules have other names than Llama's, map them as `gpt2_names.py` does, in `from_transformers.text_decoder`.
3. If the family computes something new, add a field to `DecoderConfig` (`from_transformers.py`), fill the field in
   `extract`, and add the same field to `CDecoder` (`bindings.py`), to `_SAME_NAMES` (`stage.py`) and to `aici_decoder`
   (`src/decoder.c`). A new RoPE type with fixed frequencies needs only a name in `_ROPE_TYPES` (`supported.py`).
4. If GGUF metadata needs completion, add the keys to `_KEYS` in `store/gguf_config.py`.
5. Tests: a tiny configuration in `FAMILIES` and the name in `NATIVE` of `tests/engine/model/test_models.py` compare the
   logits with transformers. Variants (biases, windows, softcaps) go to `FAMILIES` of
   `tests/engine/native/test_native_model.py`, GGUF files to `tests/engine/store/gguf_models.py`.
"""

import logging
from pathlib import Path
from typing import Any, Final

import torch

from aici_engine.config import Dtype, EngineConfig
from aici_engine.model.compute_device import ComputeDevice
from aici_engine.model.interface import Model
from aici_engine.model.quantize import dequantize, quantize_int4, quantize_int8, round_weights
from aici_engine.model_files import read_settings
from aici_engine.native import packed_cache
from aici_engine.native.bindings import Format
from aici_engine.native.from_transformers import FORMATS
from aici_engine.native.library import load
from aici_engine.native.linear import linears, use_integers
from aici_engine.native.matrix_layout import LANES
from aici_engine.native.model import NativeModel
from aici_engine.native.packed_weights import PackedWeights
from aici_engine.native.paged_attention import PagedKernel
from aici_engine.native.supported import unsupported_reason
from aici_engine.native.thread_pool import ThreadPool

_LOSSLESS: Final = 1e-4
"""Largest relative error of a matrix that counts as lossless. Packing weights again loses less if the weights were
stored in the same format; rounding other weights loses a hundred times as much."""

_log = logging.getLogger(__name__)


def make_model(config: EngineConfig, compute: ComputeDevice) -> Model:
    """Load the model of `config.model_dir`.

    Raises UsageError if the folder holds no decoder that the engine can run.
    """
    library = load() if compute.on_cpu else None
    pool = None if library is None else ThreadPool(library, torch.get_num_threads())
    if (
        pool is not None
        and compute.page_size % LANES == 0
        and (packed := packed_cache.load(config.model_dir, config.dtype))
    ):
        return NativeModel(packed, pool)
    # Imported here: transformers takes as long to import as torch, and cached packed weights do not need it.
    from aici_engine.model.load import align, load_model

    dtype = _stored_dtype(config.model_dir) if config.dtype == "auto" else config.dtype
    kernel = None if pool is None else PagedKernel(pool)
    model = load_model(config.model_dir, dtype=dtype, device=compute.device, kernel=kernel)
    if not compute.on_cpu:
        return model
    if kernel is None or pool is None:
        _log.info("torch runs the model: no native kernels for this processor")
        align(model.module)
        if config.dtype in ("int8", "int4"):
            round_weights(model.module, bits=8 if config.dtype == "int8" else 4)
        return model
    weights = FORMATS[_smallest_lossless(model.module, dtype) if config.dtype == "auto" else dtype]
    why = unsupported_reason(model, page_size=compute.page_size)
    if why is None:
        packed = PackedWeights.of(model, weights)
        packed_cache.save(packed, config.model_dir, config.dtype)
        return NativeModel(packed, pool)
    _log.info("the native kernels run only parts of the model: %s", why)
    align(model.module)
    if weights in (Format.INT8, Format.INT4):
        use_integers(model.module, weights, pool)
        if compute.page_size % kernel.page_size == 0 and all(map(kernel.serves, model.layers)):
            model.dtype = torch.bfloat16  # number type of the cache, as in NativeModel
    return model


def _stored_dtype(folder: Path) -> Dtype:
    """bfloat16 if config.json says so, else float32: neither of bf16 and f16 holds all values of the other."""
    config = read_settings(folder / "config.json")
    return "bfloat16" if config.get("dtype", config.get("torch_dtype")) == "bfloat16" else "float32"


def _smallest_lossless(module: Any, dtype: Dtype) -> Dtype:
    """The smallest format without loss. Weights from a GGUF file lie on the grid of an integer format."""
    head = module.get_output_embeddings()
    matrices = [weight.detach() for _, _, part, weight in linears(module) if part is not head]
    if all(_is_lossless(matrix, dequantize(*quantize_int4(matrix))) for matrix in matrices):
        return "int4"
    if all(_is_lossless(matrix, dequantize(*quantize_int8(matrix))) for matrix in matrices):
        return "int8"
    return dtype


def _is_lossless(weight: torch.Tensor, packed: torch.Tensor) -> bool:
    return bool((weight - packed).norm() <= _LOSSLESS * weight.norm())
