"""Stages that transformers loads: of families that the C decoder does not know, for GPUs, and to pack weights."""

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy.typing as npt
import torch

from aici_base.errors import UnavailableError, UsageError
from aici_engine.config import Dtype
from aici_engine.model import layer_range
from aici_engine.model.load_stage import describe, different_layers, load_stage, stage_tensors
from aici_engine.model.stage_model import LayerRange, StageModel
from aici_engine.model.tensor_source import TensorSource
from aici_engine.native import from_transformers
from aici_engine.native.decoder_config import FORMATS
from aici_engine.native.matrix_layout import LANES
from aici_engine.native.number_format import stored_dtype
from aici_engine.native.packed_weights import PackedWeights
from aici_engine.native.paged_attention import PagedKernel
from aici_engine.native.supported import FAMILIES, unsupported_reason
from aici_engine.native.thread_pool import ThreadPool
from aici_engine.native.torch_backend import matrices_of, use_integers_in

if TYPE_CHECKING:
    from aici_engine.native.stage_backend import StageSpec

_LOADED_BYTES: Final = 1 << 27
"""Unpacked weights that may be in memory at a time, if one layer is not larger."""


def make_torch_stage(source: TensorSource, part: LayerRange, spec: "StageSpec", pool: ThreadPool | None) -> StageModel:
    """Load a range of layers that torch runs; with a `pool`, the kernels run parts of it. Raises as `make_stage`."""
    if spec.device == "cuda" and not torch.cuda.is_available():
        raise UnavailableError(
            "a stage was asked to run on a GPU, but torch sees no GPU", hint="choose --device cpu for all stages"
        )
    if spec.num_threads is not None:
        torch.set_num_threads(spec.num_threads)
    kernel = None if pool is None else PagedKernel(pool)
    stage = load_stage(source, part, dtype=spec.dtype, device=torch.device(spec.device), kernel=kernel)
    layer_range.drop_unused_end(stage.module, part)
    use_integers_in(stage, spec.dtype, pool, page_size=spec.page_size)
    return stage


def streamed_matrices(source: TensorSource) -> Iterator[npt.NDArray[Any]]:
    """Yield the matrices of the layers, with one layer in memory at a time."""
    dtype = stored_dtype(source.config)
    for i in range(describe(source).num_layers):
        yield from matrices_of(load_stage(source, LayerRange(i, i + 1, False, False), dtype=dtype).module)


def check_family(source: TensorSource) -> None:
    """Raise UsageError if the model cannot run in stages."""
    layer_range.check(describe(source).name)


def unsupported_source(source: TensorSource, dtype: Dtype, page_size: int) -> str | None:
    """As `unsupported_reason`, from one layer of each type."""
    name = describe(source).name
    if name not in FAMILIES:
        return f"the native decoder does not support {name}"
    layers = []
    for first in different_layers(source):
        stage = load_stage(source, LayerRange(first, first + 1, False, False), dtype=dtype)
        layers += stage.layers
        if why := unsupported_reason(stage, page_size=page_size):
            return why
    stage.layers = layers
    return unsupported_reason(stage, page_size=page_size)


def pack_sections(
    source: TensorSource, sections: Sequence[LayerRange], dtype: Dtype
) -> Iterator[tuple[LayerRange, PackedWeights]]:
    """Yield the sections of a stage with their packed weights. Raises UsageError if the kernels cannot run them."""
    for group in _groups(source, sections):
        yield from _pack_group(source, group, dtype)  # the loaded layers are freed when the function returns


def _pack_group(
    source: TensorSource, group: Sequence[LayerRange], dtype: Dtype
) -> Iterator[tuple[LayerRange, PackedWeights]]:
    ends = group[0]
    stage = load_stage(source, LayerRange(ends.first, group[-1].last, ends.embedding, ends.head), dtype=dtype)
    if why := unsupported_reason(stage, page_size=LANES):
        raise UsageError(why)
    for section in group:
        yield section, PackedWeights.lay_out(*from_transformers.extract(stage, FORMATS[dtype], section))


def _groups(source: TensorSource, sections: Sequence[LayerRange]) -> Iterator[list[LayerRange]]:
    """Yield adjacent layers that are loaded together, because each loading takes a while: up to `_LOADED_BYTES`."""
    layers = [section for section in sections if section.num_layers]
    yield from ([section] for section in sections if not section.num_layers)
    if not layers:
        return
    numbers = sum(math.prod(source.tensors[name].shape) for name in stage_tensors(source, layers[0]))
    most = max(1, _LOADED_BYTES // (4 * numbers))
    for _, run in itertools.groupby(enumerate(layers), lambda each: each[1].first - each[0]):
        adjacent = [layer for _, layer in run]
        yield from (adjacent[i : i + most] for i in range(0, len(adjacent), most))
