"""Pack the weights of a stage, a few layers at a time."""

import itertools
import logging
import math
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy.typing as npt

from aici_base.errors import UnavailableError, UsageError
from aici_engine.config import Dtype
from aici_engine.model.load_stage import load_stage, stage_tensors
from aici_engine.model.stage_range import LayerRange
from aici_engine.model.tensor_source import TensorSource
from aici_engine.native import from_transformers, packed_cache
from aici_engine.native.bindings import Format
from aici_engine.native.decoder_config import FORMATS, DecoderConfig
from aici_engine.native.matrix_layout import LANES
from aici_engine.native.packed_weights import PackedWeights
from aici_engine.native.supported import unsupported_reason

_LOADED_BYTES: Final = 1 << 27
"""Unpacked weights that may be in memory at a time, if one layer is not larger."""

_log = logging.getLogger(__name__)

_Extracted = tuple[LayerRange, DecoderConfig, dict[str, npt.NDArray[Any]]]
"""A section with its configuration and tensors, see `from_transformers.extract`."""


def pack_stage(source: TensorSource, part: LayerRange, dtype: Dtype) -> PackedWeights:
    """Read and pack the tensors of a range. `dtype` is not "auto".

    Integer weights come from the cache, where every layer has a file, so that a stage with other layers packs only the
    new layers. Raises UsageError if the kernels cannot run the range, or as `load_stage` does.
    """
    sections = _sections(part)
    if FORMATS[dtype] in (Format.INT8, Format.INT4):
        try:
            return _through_cache(source, part, sections, dtype)
        except (UnavailableError, OSError, ValueError) as error:
            _log.info("packed weights are not cached: %s", error)
    # A block per section: weights that are not packed yet are few at all times.
    extracted = _extract(source, sections, dtype)
    return PackedWeights.joined([PackedWeights.lay_out(config, tensors) for _, config, tensors in extracted], part)


def _through_cache(
    source: TensorSource, part: LayerRange, sections: Sequence[LayerRange], dtype: Dtype
) -> PackedWeights:
    paths = {section: packed_cache.section_path(source, section, dtype) for section in sections}
    missing = [section for section, path in paths.items() if not packed_cache.is_sound(path)]
    for section, config, tensors in _extract(source, missing, dtype):
        PackedWeights.lay_out(config, tensors).write(paths[section])
    packed_cache.remove_unused(kept=paths.values())
    return PackedWeights.read(list(paths.values()), part)


def _sections(part: LayerRange) -> list[LayerRange]:
    """Divide a range: embedding and head together, then the layers one by one."""
    layers = [LayerRange(i, i + 1, embedding=False, head=False) for i in range(part.first, part.last)]
    return [LayerRange(0, 0, part.embedding, part.head), *layers] if part.embedding or part.head else layers


def _extract(source: TensorSource, sections: Sequence[LayerRange], dtype: Dtype) -> Iterator[_Extracted]:
    for group in _groups(source, sections):
        yield from _extract_group(source, group, dtype)  # the loaded layers are freed when the function returns


def _extract_group(source: TensorSource, group: Sequence[LayerRange], dtype: Dtype) -> Iterator[_Extracted]:
    ends = group[0]
    stage = load_stage(source, LayerRange(ends.first, group[-1].last, ends.embedding, ends.head), dtype=dtype)
    if why := unsupported_reason(stage, page_size=LANES):
        raise UsageError(why)
    for section in group:
        yield section, *from_transformers.extract(stage, FORMATS[dtype], section)


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
