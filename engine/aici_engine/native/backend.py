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

import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import torch

from aici_base.cache_files import default_cache_dir, write_atomically
from aici_base.errors import UnavailableError
from aici_engine.config import DTYPES, Dtype, EngineConfig
from aici_engine.model import layer_range
from aici_engine.model.compute_device import ComputeDevice
from aici_engine.model.huggingface_stage import HuggingFaceStage
from aici_engine.model.interface import Model
from aici_engine.model.quantize import dequantize, quantize_int4, quantize_int8, round_weights
from aici_engine.model.stage_model import LayerRange, StageModel
from aici_engine.model.tensor_source import TensorSource
from aici_engine.model_files import read_settings
from aici_engine.native import packed_cache
from aici_engine.native.from_transformers import FORMATS
from aici_engine.native.library import load
from aici_engine.native.linear import linears, use_integers
from aici_engine.native.malloc import large_blocks_returned
from aici_engine.native.matrix_layout import LANES
from aici_engine.native.model import NativeModel
from aici_engine.native.packed_weights import PackedWeights
from aici_engine.native.paged_attention import PagedKernel
from aici_engine.native.stage import NativeStage
from aici_engine.native.supported import FAMILIES, unsupported_reason
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

    stored = _stored_dtype(read_settings(config.model_dir / "config.json"))
    dtype = stored if config.dtype == "auto" else config.dtype
    kernel = None if pool is None else PagedKernel(pool)
    model = load_model(config.model_dir, dtype=dtype, device=compute.device, kernel=kernel)
    if not compute.on_cpu:
        return model
    if kernel is None or pool is None:
        _log.info("torch runs the model: no native kernels for this processor")
        align(model.module)
        _use_integers(model, dtype, None, page_size=compute.page_size)
        return model
    if config.dtype == "auto":
        dtype = _smallest_lossless(lambda: _matrices(model.module), dtype)
    why = unsupported_reason(model, page_size=compute.page_size)
    if why is None:
        packed = PackedWeights.of(model, FORMATS[dtype])
        packed_cache.save(packed, config.model_dir, config.dtype)
        return NativeModel(packed, pool)
    _log.info("the native kernels run only parts of the model: %s", why)
    align(model.module)
    _use_integers(model, dtype, pool, page_size=compute.page_size)
    return model


@dataclass(frozen=True, slots=True)
class StageSpec:
    """How all stages of a model compute, as plain data. `dtype` is never auto; `device`: cpu or cuda."""

    dtype: Dtype
    backend: Literal["native", "torch"]
    device: str
    page_size: int
    num_threads: int | None = None


@large_blocks_returned()
def decide(source: TensorSource, config: EngineConfig, compute: ComputeDevice) -> StageSpec:
    """Choose the backend and the number format, once for all stages of a model.

    Reads the layers of `source` one at a time, and for dtype auto all of them in the worst case; the weights of one
    layer are in memory at a time. Raises UsageError if the model cannot run in stages.
    """
    from aici_engine.model.load_stage import describe

    layer_range.check(describe(source).name)
    stored = _stored_dtype(source.config)
    dtype = stored if config.dtype == "auto" else config.dtype
    why = "the model runs on a GPU" if not compute.on_cpu else None if load() else "no kernels for this processor"
    if why is None:
        if config.dtype == "auto":
            dtype = _known_dtype(source) or _smallest_lossless(lambda: _streamed_matrices(source, stored), stored)
            if dtype != stored:  # a format with loss is found out by the first layer
                _remember_dtype(source, dtype)
        why = _unsupported_source(source, dtype, page_size=compute.page_size)
    if why is not None:
        _log.info("torch runs the stages: %s", why)
    backend: Literal["native", "torch"] = "native" if why is None else "torch"
    return StageSpec(dtype, backend, compute.device.type, compute.page_size, config.num_threads)


@large_blocks_returned()
def make_stage(source: TensorSource, part: LayerRange, spec: StageSpec) -> StageModel:
    """Load a range of layers. Of `source`, the tensors of `load_stage.stage_tensors` are read and no others.

    Raises UsageError if the model cannot run in stages, or tensors are missing; UnavailableError if this machine lacks
    what `spec` asks for.
    """
    from aici_engine.model.load_stage import load_stage

    device = torch.device(spec.device)
    if device.type == "cuda" and not torch.cuda.is_available():
        raise UnavailableError(
            "a stage was asked to run on a GPU, but torch sees no GPU", hint="choose --device cpu for all stages"
        )
    library = load() if device.type == "cpu" else None
    pool = None if library is None else ThreadPool(library, spec.num_threads or torch.get_num_threads())
    kernel = None if pool is None else PagedKernel(pool)
    if spec.backend == "native":
        from aici_engine.native.pack_stage import pack_stage

        assert pool is not None
        return NativeStage(pack_stage(source, part, spec.dtype), pool)
    stage = load_stage(source, part, dtype=spec.dtype, device=device, kernel=kernel)
    layer_range.drop_unused_end(stage.module, part)
    _use_integers(stage, spec.dtype, pool, page_size=spec.page_size)
    return stage


def _use_integers(stage: HuggingFaceStage, dtype: Dtype, pool: ThreadPool | None, *, page_size: int) -> None:
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


def _known_dtype(source: TensorSource) -> Dtype | None:
    """Return what an earlier process found out about the same tensors: looking at all of them takes seconds."""
    try:
        found = _dtype_path(source).read_text()
    except (OSError, ValueError):
        return None
    return next((dtype for dtype in DTYPES if dtype == found != "auto"), None)


def _remember_dtype(source: TensorSource, dtype: Dtype) -> None:
    with contextlib.suppress(UnavailableError):  # a cache folder that cannot be written costs time alone
        write_atomically(_dtype_path(source), dtype.encode())


def _dtype_path(source: TensorSource) -> Path:
    return default_cache_dir() / "dtypes" / packed_cache.state_of(source.identity())


def _streamed_matrices(source: TensorSource, dtype: Dtype) -> Iterator[torch.Tensor]:
    """Yield the matrices of the layers, with one layer in memory at a time."""
    from aici_engine.model.load_stage import describe, load_stage

    for i in range(describe(source).num_layers):
        yield from _matrices(load_stage(source, LayerRange(i, i + 1, False, False), dtype=dtype).module)


def _unsupported_source(source: TensorSource, dtype: Dtype, *, page_size: int) -> str | None:
    """As `unsupported_reason`, from one layer of each type."""
    from aici_engine.model.load_stage import describe, load_stage

    facts = describe(source)
    if facts.name not in FAMILIES:
        return f"the native decoder does not support {facts.name}"
    layers = []
    for first in facts.different_layers:
        stage = load_stage(source, LayerRange(first, first + 1, False, False), dtype=dtype)
        layers += stage.layers
        if why := unsupported_reason(stage, page_size=page_size):
            return why
    stage.layers = layers
    return unsupported_reason(stage, page_size=page_size)


def _stored_dtype(settings: Mapping[str, Any]) -> Dtype:
    """bfloat16 if config.json says so, else float32: neither of bf16 and f16 holds all values of the other."""
    return "bfloat16" if settings.get("dtype", settings.get("torch_dtype")) == "bfloat16" else "float32"


def _smallest_lossless(matrices: Callable[[], Iterator[torch.Tensor]], dtype: Dtype) -> Dtype:
    """The smallest format without loss. Weights from a GGUF file lie on the grid of an integer format."""
    if all(_is_lossless(matrix, dequantize(*quantize_int4(matrix))) for matrix in matrices()):
        return "int4"
    if all(_is_lossless(matrix, dequantize(*quantize_int8(matrix))) for matrix in matrices()):
        return "int8"
    return dtype


def _matrices(module: Any) -> Iterator[torch.Tensor]:
    """Yield the matrices of a transformers model, without the head."""
    head = module.get_output_embeddings()
    for _, _, part, weight in linears(module):
        if part is not head:
            yield weight.detach()


def _is_lossless(weight: torch.Tensor, packed: torch.Tensor) -> bool:
    return bool((weight - packed).norm() <= _LOSSLESS * weight.norm())
