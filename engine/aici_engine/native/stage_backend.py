"""Choose the implementation of a model's stages, once for all stages, and load a range of layers."""

import contextlib
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy.typing as npt
import torch

from aici_base.cache_files import default_cache_dir, write_atomically
from aici_base.errors import UnavailableError
from aici_engine.config import DTYPES, Dtype, EngineConfig
from aici_engine.cpu_threads import default_threads
from aici_engine.model import layer_range
from aici_engine.model.compute_device import ComputeDevice
from aici_engine.model.load_stage import describe, load_stage
from aici_engine.model.stage_model import LayerRange, StageModel
from aici_engine.model.tensor_source import TensorSource
from aici_engine.native import packed_cache
from aici_engine.native.library import load
from aici_engine.native.malloc import large_blocks_returned
from aici_engine.native.number_format import smallest_lossless, stored_dtype
from aici_engine.native.pack_stage import pack_stage
from aici_engine.native.paged_attention import PagedKernel
from aici_engine.native.stage import NativeStage
from aici_engine.native.supported import FAMILIES, unsupported_reason
from aici_engine.native.thread_pool import ThreadPool
from aici_engine.native.torch_backend import matrices_of, use_integers_in

_log = logging.getLogger(__name__)


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
    layer_range.check(describe(source).name)
    stored = stored_dtype(source.config)
    dtype = stored if config.dtype == "auto" else config.dtype
    why = "the model runs on a GPU" if not compute.on_cpu else None if load() else "no kernels for this processor"
    if why is None:
        if config.dtype == "auto":
            dtype = _known_dtype(source) or smallest_lossless(lambda: _streamed_matrices(source, stored), stored)
            if dtype != stored:  # a format with loss is found out by the first layer
                _remember_dtype(source, dtype)
        why = _unsupported_source(source, dtype, page_size=compute.page_size)
    if why is not None:
        _log.info("torch runs the stages: %s", why)
    backend: Literal["native", "torch"] = "native" if why is None else "torch"
    return StageSpec(dtype, backend, compute.device, compute.page_size, config.num_threads)


@large_blocks_returned()
def make_stage(source: TensorSource, part: LayerRange, spec: StageSpec) -> StageModel:
    """Load a range of layers. Of `source`, the tensors of `load_stage.stage_tensors` are read and no others.

    Raises UsageError if the model cannot run in stages, or tensors are missing; UnavailableError if this machine lacks
    what `spec` asks for.
    """
    device = torch.device(spec.device)
    if device.type == "cuda" and not torch.cuda.is_available():
        raise UnavailableError(
            "a stage was asked to run on a GPU, but torch sees no GPU", hint="choose --device cpu for all stages"
        )
    library = load() if device.type == "cpu" else None
    pool = None if library is None else ThreadPool(library, spec.num_threads or default_threads())
    kernel = None if pool is None else PagedKernel(pool)
    if spec.backend == "native":
        assert pool is not None
        return NativeStage(pack_stage(source, part, spec.dtype), pool)
    if spec.num_threads is not None:
        torch.set_num_threads(spec.num_threads)
    stage = load_stage(source, part, dtype=spec.dtype, device=device, kernel=kernel)
    layer_range.drop_unused_end(stage.module, part)
    use_integers_in(stage, spec.dtype, pool, page_size=spec.page_size)
    return stage


def _known_dtype(source: TensorSource) -> Dtype | None:
    """Return the findings of an earlier process about the same tensors: looking at all tensors takes seconds."""
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


def _streamed_matrices(source: TensorSource, dtype: Dtype) -> Iterator[npt.NDArray[Any]]:
    """Yield the matrices of the layers, with one layer in memory at a time."""
    for i in range(describe(source).num_layers):
        yield from matrices_of(load_stage(source, LayerRange(i, i + 1, False, False), dtype=dtype).module)


def _unsupported_source(source: TensorSource, dtype: Dtype, *, page_size: int) -> str | None:
    """As `unsupported_reason`, from one layer of each type."""
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
