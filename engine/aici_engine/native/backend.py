"""Which implementation runs a model: our kernels where they can, transformers and torch elsewhere."""

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import torch

from aici_engine.config import Dtype, EngineConfig
from aici_engine.model.compute_device import ComputeDevice
from aici_engine.model.huggingface import HuggingFaceModel
from aici_engine.model.interface import Model
from aici_engine.model.quantize import dequantize, quantize_int4, quantize_int8, round_weights
from aici_engine.model_files import read_settings
from aici_engine.native import packed_cache
from aici_engine.native.bindings import Format
from aici_engine.native.from_transformers import activation_of, text_decoder
from aici_engine.native.library import load
from aici_engine.native.linear import linears, use_integers
from aici_engine.native.matrix_layout import LANES
from aici_engine.native.model import FORMATS, NativeModel
from aici_engine.native.packed_weights import PackedWeights
from aici_engine.native.paged_attention import MAX_HEAD_DIM, PagedKernel, fits
from aici_engine.native.thread_pool import ThreadPool

FAMILIES: Final = frozenset(
    f"{name}ForCausalLM"
    for name in (
        *("Llama", "Mistral", "Qwen2", "Qwen3", "Phi3", "Gemma", "Gemma2", "Gemma3"),
        *("Granite", "SmolLM3", "Olmo2", "Olmo3"),
    )
) | {"Gemma3ForConditionalGeneration", "GPT2LMHeadModel"}
_ROTATIONS: Final = frozenset({"default", "linear", "llama3", "yarn", "longrope"})
"""Whose frequencies do not depend on the sequence: longrope's do not within the context that it is served with."""
_LOSSLESS: Final = 1e-4
"""Of a matrix: what is lost by packing weights again that were stored so. Rounding others costs a hundred times it."""

_log = logging.getLogger(__name__)


def make_model(config: EngineConfig, compute: ComputeDevice) -> Model:
    """Raises UsageError if the folder holds no decoder, or one that nothing here can run."""
    library = load() if compute.on_cpu else None
    pool = None if library is None else ThreadPool(library, torch.get_num_threads())
    if (
        pool is not None
        and compute.page_size % LANES == 0
        and (packed := packed_cache.load(config.model_dir, config.dtype))
    ):
        return NativeModel(packed, pool)
    # Transformers weighs as much as torch: what was packed before does without.
    from aici_engine.model.load import load_model

    dtype = _stored(config.model_dir) if config.dtype == "auto" else config.dtype
    kernel = None if pool is None else PagedKernel(pool)
    model = load_model(config.model_dir, dtype=dtype, device=compute.device, kernel=kernel)
    if not compute.on_cpu:
        return model
    if kernel is None or pool is None:
        _log.info("torch runs the model: there are no kernels for this processor")
        if config.dtype in ("int8", "int4"):
            round_weights(model.module, bits=8 if config.dtype == "int8" else 4)
        return model
    weights = FORMATS[_smallest(model.module, dtype) if config.dtype == "auto" else dtype]
    why = unsupported_reason(model, page_size=compute.page_size)
    if why is None:
        packed = PackedWeights.of(model, weights)
        packed_cache.save(packed, config.model_dir, config.dtype)
        return NativeModel(packed, pool)
    _log.info("the kernels run parts of the model only: %s", why)
    if weights in (Format.INT8, Format.INT4):
        use_integers(model.module, weights, pool)
        if compute.page_size % kernel.page_size == 0 and all(map(kernel.serves, model.layers)):
            model.dtype = torch.bfloat16  # of the cache, as in NativeModel
    return model


def unsupported_reason(model: HuggingFaceModel, *, page_size: int) -> str | None:
    """Why the kernels cannot run it: None if they can."""
    if model.name not in FAMILIES:
        return f"there are no kernels for {model.name}"
    decoder, first = text_decoder(model.module), model.layers[0]
    config = decoder.config
    kinds = decoder.rotary_emb.rope_type if hasattr(decoder, "rotary_emb") else "default"
    if unknown := {*(kinds.values() if isinstance(kinds, dict) else [kinds])} - _ROTATIONS:
        return f"the kernels do not know its rotation ({', '.join(sorted(unknown))})"
    if activation_of(decoder.layers[0].mlp) is None:
        return "the kernels know no other activations than SiLU and GELU by tanh"
    if first.has_sinks or any(replace(layer, window=first.window) != first for layer in model.layers):
        return "its layers attend in a way that the kernels do not know"
    if not fits(first.key_dim) or first.key_dim != first.value_dim:
        return f"attention heads are {first.key_dim} wide: the kernels want a multiple of {LANES} up to {MAX_HEAD_DIM}"
    if any(
        n % 32
        for n in (
            config.hidden_size,
            decoder.layers[0].mlp.down_proj.weight.shape[1],
            config.num_attention_heads * first.key_dim,
        )
    ):
        return "the kernels want widths that are multiples of 32"
    if page_size % LANES:
        return f"pages have {page_size} tokens: the kernels want a multiple of {LANES}"
    return None


def _stored(folder: Path) -> Dtype:
    """As the folder's own configuration says; half precision would not hold what bf16 does, nor the other way round."""
    config = read_settings(folder / "config.json")
    return "bfloat16" if config.get("dtype", config.get("torch_dtype")) == "bfloat16" else "float32"


def _smallest(module: Any, dtype: Dtype) -> Dtype:
    """The smallest format that these weights lose nothing in: those of a GGUF file were integers once."""
    head = module.get_output_embeddings()
    matrices = [weight.detach() for _, _, part, weight in linears(module) if part is not head]
    if all(_is_lossless(matrix, dequantize(*quantize_int4(matrix))) for matrix in matrices):
        return "int4"
    if all(_is_lossless(matrix, dequantize(*quantize_int8(matrix))) for matrix in matrices):
        return "int8"
    return dtype


def _is_lossless(weight: torch.Tensor, packed: torch.Tensor) -> bool:
    return bool((weight - packed).norm() <= _LOSSLESS * weight.norm())
