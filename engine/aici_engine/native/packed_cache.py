"""Packed weights in the cache folder.

Packing integers takes seconds; reading packed weights takes a tenth of a second.
"""

import contextlib
import hashlib
import logging
import os
import time
from pathlib import Path

from aici_base.cache_files import default_cache_dir
from aici_base.errors import UnavailableError
from aici_controllers.object_cache import digest
from aici_engine.config import Dtype
from aici_engine.native.bindings import Format
from aici_engine.native.packed_weights import PackedWeights

_ABANDONED_S = 3600
_UNUSED_S = 30 * 24 * 3600

_log = logging.getLogger(__name__)


def load(folder: Path, dtype: Dtype) -> PackedWeights | None:
    """Return the packed weights of the model in `folder`, or None if the cache has no readable file.

    A change of the model's files or of our packing code invalidates the cache.
    """
    path = _path(folder, dtype)
    try:
        packed = PackedWeights.read(path)
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
    for other in path.parent.iterdir():
        with contextlib.suppress(OSError):
            if other != path and _is_waste(other, _prefix(folder, dtype)):
                other.unlink()


def _is_waste(path: Path, prefix: str) -> bool:
    """Whether the file belongs to an older state of the folder, or was unused for a month."""
    age_s = time.time() - path.stat().st_mtime
    if path.suffix == ".tmp":  # another process may be writing the file
        return age_s > _ABANDONED_S
    return path.name.startswith(prefix) or age_s > _UNUSED_S


def _path(folder: Path, dtype: Dtype) -> Path:
    files = sorted([*folder.glob("*.json"), *folder.glob("*.safetensors")])
    # Size and modification time identify the content: hashing gigabytes on every start would take seconds.
    stats = [(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    engine = Path(__file__).parents[1]
    code = sorted(path for part in ("model", "native") for path in (engine / part).glob("*.py"))
    state = hashlib.sha256(f"{stats} {digest(code, engine)}".encode()).hexdigest()
    return default_cache_dir() / "packed" / f"{_prefix(folder, dtype)}{state[:16]}.bin"


def _prefix(folder: Path, dtype: Dtype) -> str:
    whole = folder.resolve()
    return f"{whole.name}-{hashlib.sha256(bytes(whole)).hexdigest()[:8]}-{dtype}-"
