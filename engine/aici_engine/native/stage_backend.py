"""Choose the implementation of a model's stages, once for all stages, and load a range of layers."""

import contextlib
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy.typing as npt

from aici_base.cache_files import default_cache_dir, write_atomically
from aici_base.errors import UnavailableError
from aici_engine.config import DTYPES, Dtype, EngineConfig
from aici_engine.cpu_threads import default_threads
from aici_engine.extras import needed_for
from aici_engine.model.compute_device import ComputeDevice
from aici_engine.model.stage_model import LayerRange, StageModel
from aici_engine.model.tensor_source import TensorSource
from aici_engine.native import packed_cache
from aici_engine.native.from_folder import known_weights
from aici_engine.native.known_model import NotKnownError
from aici_engine.native.library import load
from aici_engine.native.malloc import large_blocks_returned
from aici_engine.native.matrix_layout import LANES
from aici_engine.native.number_format import smallest_lossless, stored_dtype
from aici_engine.native.pack_stage import pack_stage
from aici_engine.native.stage import NativeStage
from aici_engine.native.thread_pool import ThreadPool

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
    reader = _reader_of(source)
    stored = stored_dtype(source.config)
    dtype = stored if config.dtype == "auto" else config.dtype
    why = "the model runs on a GPU" if not compute.on_cpu else None if load() else "no kernels for this processor"
    if why is None:
        if config.dtype == "auto":
            dtype = _remembered_dtype(source) or smallest_lossless(reader.matrices, stored)
            if dtype != stored:  # a format with loss is found out by the first layer
                _remember_dtype(source, dtype)
        why = reader.unsupported_reason(dtype, compute.page_size)
    if why is not None:
        _log.info("torch runs the stages: %s", why)
    backend: Literal["native", "torch"] = "native" if why is None else "torch"
    return StageSpec(dtype, backend, compute.device, compute.page_size, config.num_threads)


@large_blocks_returned()
def make_stage(source: TensorSource, part: LayerRange, spec: StageSpec) -> StageModel:
    """Load a range of layers. Of `source`, the tensors of `stage_source.stage_tensors` are read and no others.

    Raises UsageError if the model cannot run in stages, or tensors are missing; UnavailableError if this machine lacks
    what `spec` asks for.
    """
    library = load() if spec.device == "cpu" else None
    pool = None if library is None else ThreadPool(library, spec.num_threads or default_threads())
    if spec.backend == "native":
        if pool is None:
            raise UnavailableError(
                f"the driver asks for the kernels, which do not run on this machine's {spec.device}",
                hint="start the driver with AICI_NATIVE=off, or this stage with --device cpu",
            )
        return NativeStage(pack_stage(source, part, spec.dtype), pool)
    with needed_for("a stage that the kernels do not run"):
        from aici_engine.native.torch_stage import make_torch_stage
    return make_torch_stage(source, part, spec, pool)


class _Reader(NamedTuple):
    """How the layers of a model are looked at. `unsupported_reason`: why the kernels cannot run them with a dtype and a
    page size, or None."""

    matrices: Callable[[], Iterable[npt.NDArray[Any]]]
    unsupported_reason: Callable[[Dtype, int], str | None]


def _reader_of(source: TensorSource) -> _Reader:
    """Raises UsageError if the model cannot run in stages."""
    try:
        return _Reader(known_weights(source, dtype="auto").matrices, _unsupported_pages)
    except NotKnownError as why:
        with needed_for(f"a model in stages, because {why}"):
            from aici_engine.native import torch_stage
        torch_stage.check_family(source)
        return _Reader(partial(torch_stage.streamed_matrices, source), partial(torch_stage.unsupported_source, source))


def _unsupported_pages(_: Dtype, page_size: int) -> str | None:
    return f"the kernels need a page_size in multiples of {LANES}" if page_size % LANES else None


def _remembered_dtype(source: TensorSource) -> Dtype | None:
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
