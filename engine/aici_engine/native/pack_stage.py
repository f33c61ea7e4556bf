"""Pack the weights of a stage, a few layers at a time."""

import logging
from collections.abc import Iterator, Sequence

from aici_base.errors import UnavailableError
from aici_engine.config import Dtype
from aici_engine.extras import needed_for
from aici_engine.model.stage_range import LayerRange
from aici_engine.model.tensor_source import TensorSource
from aici_engine.native import packed_cache
from aici_engine.native.bindings import Format
from aici_engine.native.decoder_config import FORMATS
from aici_engine.native.from_folder import known_weights
from aici_engine.native.known_model import NotKnownError
from aici_engine.native.packed_weights import PackedWeights

_log = logging.getLogger(__name__)


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
    return PackedWeights.joined([packed for _, packed in _pack(source, sections, dtype)], part)


def _through_cache(
    source: TensorSource, part: LayerRange, sections: Sequence[LayerRange], dtype: Dtype
) -> PackedWeights:
    paths = {section: packed_cache.section_path(source, section, dtype) for section in sections}
    missing = [section for section, path in paths.items() if not packed_cache.is_sound(path)]
    for section, packed in _pack(source, missing, dtype):
        packed.write(paths[section])
    packed_cache.remove_unused(kept=paths.values())
    return PackedWeights.read(list(paths.values()), part)


def _sections(part: LayerRange) -> list[LayerRange]:
    """Divide a range: embedding and head together, then the layers one by one."""
    layers = [LayerRange(i, i + 1, embedding=False, head=False) for i in range(part.first, part.last)]
    return [LayerRange(0, 0, part.embedding, part.head), *layers] if part.embedding or part.head else layers


def _pack(
    source: TensorSource, sections: Sequence[LayerRange], dtype: Dtype
) -> Iterator[tuple[LayerRange, PackedWeights]]:
    """Yield the sections with their weights, in any order."""
    try:
        known = [known_weights(source, section, dtype=dtype) for section in sections]
    except NotKnownError as why:
        with needed_for(f"a model in stages, because {why}"):
            from aici_engine.native.torch_stage import pack_sections
        yield from pack_sections(source, sections, dtype)
    else:
        for section, weights in zip(sections, known, strict=True):
            yield section, weights.pack(FORMATS[dtype])
