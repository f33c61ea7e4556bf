"""Packed weights in the cache folder: a file for a model, or for a stage a file per layer.

Packing integers takes seconds; reading packed weights takes a tenth of a second.
"""

import contextlib
import glob
import hashlib
import logging
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from aici_base.cache_files import default_cache_dir
from aici_base.errors import UnavailableError
from aici_base.native_library import digest
from aici_engine.config import Dtype
from aici_engine.model.stage_range import LayerRange
from aici_engine.model_files import file_states
from aici_engine.native.bindings import Format
from aici_engine.native.packed_weights import Description, PackedWeights

if TYPE_CHECKING:
    from aici_engine.model.tensor_source import TensorSource

_ABANDONED_S = 3600
_UNUSED_S = 30 * 24 * 3600

_log = logging.getLogger(__name__)


def load(folder: Path, dtype: Dtype) -> PackedWeights | None:
    """Return the packed weights of the model in `folder`, or None if the cache has no readable file.

    A change of the model's files or of our packing code invalidates the cache.
    """
    path = _path(folder, dtype)
    try:
        packed = PackedWeights.read([path])
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        _log.warning("packed weights cannot be read and are packed again: %s", error)
        return None
    with contextlib.suppress(OSError):  # the file may belong to another user
        os.utime(path)
    return packed


def save(packed: PackedWeights, folder: Path, dtype: Dtype) -> None:
    """Store integer weights, and delete files of older states of `folder` and files unused for a month.

    Float weights are not stored: packing floats is as fast as reading.
    """
    if packed.config.weight_format not in (Format.INT8, Format.INT4):
        return
    path = _path(folder, dtype)
    try:
        packed.write(path)
    except UnavailableError as error:
        _log.info("packed weights are not cached: %s", error)
        return
    remove_unused(kept=[path], prefix=_prefix(folder, dtype))


def section_path(source: "TensorSource", section: LayerRange, dtype: Dtype) -> Path:
    """Return the file for the packed weights of one layer, or of embedding and head.

    Another name follows from a change of the model or of our packing code.
    """
    ends = "-".join(["embedding"] * section.embedding + ["head"] * section.head)
    return _folder() / f"stage-{state_of(source.identity(section))}-{dtype}-{ends or section.first}.bin"


def is_sound(path: Path) -> bool:
    """Whether a file of packed weights can be read. Marks the file as used."""
    try:
        Description.read(path)
        os.utime(path)
    except (OSError, ValueError):
        return False
    return True


def remove_unused(*, kept: Iterable[Path], prefix: str | None = None) -> None:
    """Delete files unused for a month, and all files with `prefix` that are not `kept`."""
    kept = {*kept}
    for path in _folder().iterdir():
        with contextlib.suppress(OSError):
            if path not in kept and _is_waste(path, prefix):
                path.unlink()


def files_of(folder: Path, dtype: Dtype) -> list[Path]:
    """Return the files of packed weights of the model in `folder`, of all its states."""
    return sorted(_folder().glob(f"{glob.escape(_prefix(folder, dtype))}*"))


def _is_waste(path: Path, prefix: str | None) -> bool:
    """Whether the file belongs to an older state of the folder, or was unused for a month."""
    age_s = time.time() - path.stat().st_mtime
    if path.suffix == ".tmp":  # another process may be writing the file
        return age_s > _ABANDONED_S
    return (prefix is not None and path.name.startswith(prefix)) or age_s > _UNUSED_S


def _path(folder: Path, dtype: Dtype) -> Path:
    return _folder() / f"{_prefix(folder, dtype)}{state_of(str(file_states(folder)))}.bin"


def _folder() -> Path:
    return default_cache_dir() / "packed"


def state_of(identity: str) -> str:
    """A name for the state of a model and of our packing code."""
    engine = Path(__file__).parents[1]
    code = sorted(path for part in ("model", "native") for path in (engine / part).glob("*.py"))
    return hashlib.sha256(f"{identity} {digest(code, engine)}".encode()).hexdigest()[:16]


def _prefix(folder: Path, dtype: Dtype) -> str:
    whole = folder.resolve()
    return f"{whole.name}-{hashlib.sha256(bytes(whole)).hexdigest()[:8]}-{dtype}-"
