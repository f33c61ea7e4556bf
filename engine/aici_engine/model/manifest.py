"""The digests of a model's tensors: equal digests on two machines mean the same model."""

import contextlib
import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from aici_base.cache_files import default_cache_dir, write_atomically
from aici_base.errors import UnavailableError, UsageError
from aici_engine.model.tensor_source import DTYPES, FolderSource, TensorInfo, TensorSource

PIECE_BYTES: Final = 4 << 20
"""Bytes of a tensor that are read, hashed or sent at a time."""
MAX_TENSOR_BYTES: Final = 1 << 40

_SHA256: Final = re.compile(r"[0-9a-f]{64}")


class NamedDigest(NamedTuple):
    """Shape and content of a tensor. `sha256`: of its bytes, in hexadecimal digits."""

    info: TensorInfo
    sha256: str


def check_digest(wanted: NamedDigest) -> None:
    """Raise UsageError for values that no tensor of a model has. Call before values of a peer are used."""
    (dtype, shape), sha256 = wanted
    if not _SHA256.fullmatch(sha256):
        raise UsageError("a tensor was named by something else than a sha256 digest")
    if dtype not in DTYPES or any(n < 0 for n in shape) or wanted.info.nbytes > MAX_TENSOR_BYTES:
        raise UsageError(f"no tensor can have the type {dtype!r:.20} and the shape {shape!r:.80}")


def manifest(source: TensorSource, names: Iterable[str] | None = None) -> dict[str, str]:
    """Return the sha256 digest of the bytes of each named tensor (None: of all), in hexadecimal digits.

    Reads a few megabytes at a time. The digests of a folder are kept in the cache folder, and are computed again for a
    file with another size or modification time. Raises KeyError for a name that the source does not have.
    """
    names = [*(source.tensors if names is None else names)]
    known = _Known(source) if isinstance(source, FolderSource) else None
    found = {name: (known and known.get(name)) or _digest(source, name) for name in names}
    if known is not None:
        known.add(found)
    return found


def model_digest(source: TensorSource) -> str:
    """Return one digest for configuration and tensors of a whole model, in hexadecimal digits."""
    text = json.dumps([dict(source.config), manifest(source)], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _digest(source: TensorSource, name: str) -> str:
    found = hashlib.sha256()
    for start in range(0, source.tensors[name].nbytes, PIECE_BYTES):
        found.update(source.read_bytes(name, start, PIECE_BYTES))
    return found.hexdigest()


class _Known:
    """The digests of a folder's tensors in the cache folder: by file, with size and modification time of the file."""

    def __init__(self, source: FolderSource) -> None:
        self._source = source
        folder = source.folder.resolve()
        mark = hashlib.sha256(bytes(folder)).hexdigest()[:16]
        self._path = default_cache_dir() / "digests" / f"{folder.name}-{mark}.json"
        try:
            found = json.loads(self._path.read_bytes())
        except (OSError, ValueError, RecursionError):
            found = {}
        self._files: dict[str, Any] = found if isinstance(found, dict) else {}
        self._states = {path: _state(path) for path in {source.file_of(name) for name in source.tensors}}

    def get(self, name: str) -> str | None:
        path = self._source.file_of(name)
        entry = self._files.get(path.name)
        if not isinstance(entry, Mapping) or entry.get("state") != self._states[path]:
            return None
        digest = entry.get("tensors", {}).get(name)
        return digest if isinstance(digest, str) and _SHA256.fullmatch(digest) else None

    def add(self, digests: Mapping[str, str]) -> None:
        if all(self.get(name) for name in digests):
            return
        for name, digest in digests.items():
            path = self._source.file_of(name)
            entry = self._files.get(path.name)
            if not isinstance(entry, dict) or entry.get("state") != self._states[path]:
                entry = self._files[path.name] = {"state": self._states[path], "tensors": {}}
            entry["tensors"][name] = digest
        with contextlib.suppress(UnavailableError):  # a cache folder that cannot be written costs time alone
            write_atomically(self._path, json.dumps(self._files).encode())


def _state(path: Path) -> list[int]:
    stat = path.stat()
    return [stat.st_size, stat.st_mtime_ns]
