"""What earlier starts packed, in the cache: to find and pack integers takes seconds, to read them a tenth of one."""

import contextlib
import hashlib
import logging
import os
import time
from pathlib import Path

from aici_base.cache_files import default_cache_dir
from aici_base.errors import UnavailableError
from aici_controllers.objects import digest
from aici_engine.config import Dtype
from aici_engine.native.bindings import Format
from aici_engine.native.packed_weights import PackedWeights

_ABANDONED_S = 3600
_UNUSED_S = 30 * 24 * 3600

_log = logging.getLogger(__name__)


def load(folder: Path, dtype: Dtype) -> PackedWeights | None:
    """Those of a model's folder as it is now; None if they are not there, or cannot be read."""
    path = _path(folder, dtype)
    try:
        packed = PackedWeights.read(path)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        _log.warning("packed weights cannot be read, and are made again: %s", error)
        return None
    with contextlib.suppress(OSError):  # somebody else's, perhaps
        os.utime(path)
    return packed


def save(packed: PackedWeights, folder: Path, dtype: Dtype) -> None:
    """In place of those of the folder as it was. Weights that are no integers are as fast to pack as to read."""
    if packed.config.weight_format not in (Format.INT8, Format.INT4):
        return
    path = _path(folder, dtype)
    try:
        packed.write(path)
    except UnavailableError as error:
        _log.info("packed weights are not kept: %s", error)
        return
    for other in path.parent.iterdir():
        with contextlib.suppress(OSError):
            if other != path and _is_waste(other, _prefix(folder, dtype)):
                other.unlink()


def _is_waste(path: Path, prefix: str) -> bool:
    """Of the folder as it was, or unused for a month: its model may be gone."""
    age_s = time.time() - path.stat().st_mtime
    if path.suffix == ".tmp":  # that another process may be writing
        return age_s > _ABANDONED_S
    return path.name.startswith(prefix) or age_s > _UNUSED_S


def _path(folder: Path, dtype: Dtype) -> Path:
    files = sorted([*folder.glob("*.json"), *folder.glob("*.safetensors")])
    # Size and time of change stand for the content: hashing gigabytes at each start would cost seconds.
    stats = [(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    engine = Path(__file__).parents[1]
    code = sorted(path for part in ("model", "native") for path in (engine / part).glob("*.py"))
    state = hashlib.sha256(f"{stats} {digest(code, engine)}".encode()).hexdigest()
    return default_cache_dir() / "packed" / f"{_prefix(folder, dtype)}{state[:16]}.bin"


def _prefix(folder: Path, dtype: Dtype) -> str:
    whole = folder.resolve()
    return f"{whole.name}-{hashlib.sha256(bytes(whole)).hexdigest()[:8]}-{dtype}-"
