"""Tensors from a stage's driver, kept on disk by content."""

import contextlib
import hashlib
import json
import os
import shutil
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self

import numpy.typing as npt

from aici_base.cache_files import default_cache_dir, mark_used, sync
from aici_base.errors import UnavailableError, UsageError
from aici_engine.model.manifest import NamedDigest, check_digest, manifest
from aici_engine.model.stage_range import LayerRange
from aici_engine.model.tensor_source import FolderSource, TensorInfo, TensorSource, read_range, read_tensor

_ABANDONED_S: Final = 3600
_UNUSED_S: Final = 30 * 24 * 3600
_HINT: Final = "AICI_CACHE_DIR names another folder"


class TensorStore:
    """A folder of tensors. The name of a file is the sha256 digest of its content, so no name comes from a peer.

    >>> store = TensorStore(folder)
    >>> wanted = NamedDigest(TensorInfo("F32", (2,)), hashlib.sha256(bytes(8)).hexdigest())
    >>> store.add(wanted, bytes(8))
    >>> store.has(wanted)
    True
    """

    def __init__(self, folder: Path | None = None) -> None:
        """`folder`: None takes `tensors` in the cache folder."""
        self.folder = folder or default_cache_dir() / "tensors"

    def path(self, wanted: NamedDigest) -> Path:
        check_digest(wanted)
        return self.folder / wanted.sha256

    def has(self, wanted: NamedDigest) -> bool:
        """Whether the tensor is here. The digest was checked when the file was written, the size is checked now."""
        try:
            return self.path(wanted).stat().st_size == wanted.info.nbytes
        except OSError:
            return False

    def receive(self, wanted: NamedDigest) -> "ReceivedTensor":
        """Open a file for the content of `wanted`, to be used in a `with` statement."""
        return ReceivedTensor(self.path(wanted), wanted)

    def add(self, wanted: NamedDigest, content: bytes | bytearray | memoryview) -> None:
        """Store a whole tensor. Raises UsageError if the content has another digest."""
        with self.receive(wanted) as file:
            file.write(content)

    def make_room(self, wanted: Iterable[NamedDigest]) -> None:
        """Delete tensors that are not `wanted`: those unused for a month, and if the disk lacks room, the others too.

        Marks the wanted tensors as used. Raises UnavailableError if the disk still lacks room.
        """
        wanted = [*wanted]
        kept = {self.path(each) for each in wanted}
        for path in kept:
            mark_used(path)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            others = sorted((path.stat().st_mtime, path) for path in self.folder.iterdir() if path not in kept)
        except OSError as error:
            raise UnavailableError(f"tensors cannot be stored in {self.folder}: {error}", hint=_HINT) from error
        missing = {each.sha256: each.info.nbytes for each in wanted if not self.has(each)}
        need = sum(missing.values())
        for used, path in others:  # the oldest first
            age_s = time.time() - used
            is_temporary = path.suffix == ".tmp"  # another process may be writing the file
            if age_s > (_ABANDONED_S if is_temporary else _UNUSED_S) or (not is_temporary and self._free() < need):
                with contextlib.suppress(OSError):
                    path.unlink()
        if (free := self._free()) < need:
            raise UnavailableError(
                f"{self.folder} has {free / 1e9:.1f} GB free: the tensors of this stage take {need / 1e9:.1f} GB",
                hint="free disk space, or let AICI_CACHE_DIR name another folder",
            )

    def _free(self) -> int:
        return shutil.disk_usage(self.folder).free


class ReceivedTensor:
    """A tensor on its way to the disk. The file gets its name at the end of the `with` statement, if the content has
    the expected digest. After an exception, nothing is left."""

    def __init__(self, path: Path, wanted: NamedDigest) -> None:
        self._path = path
        self._wanted = wanted
        self._temporary = path.with_name(f".{path.name}.{os.getpid()}-{os.urandom(4).hex()}.tmp")
        self._digest = hashlib.sha256()
        self._count = 0

    def __enter__(self) -> Self:
        with _written(self._path.parent):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self._temporary.open("xb")
        return self

    def write(self, piece: bytes | bytearray | memoryview) -> None:
        """Append bytes. Raises UsageError for more bytes than the tensor has."""
        self._count += len(piece)
        if self._count > self._wanted.info.nbytes:
            raise UsageError(f"a tensor of {self._wanted.info.nbytes} bytes came with more bytes than that")
        self._digest.update(piece)
        with _written(self._path.parent):
            self._file.write(piece)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            with _written(self._path.parent):
                self._file.close()
            if kind is not None:
                return
            if self._count != self._wanted.info.nbytes or self._digest.hexdigest() != self._wanted.sha256:
                raise UsageError(
                    "a tensor came with other bytes than its digest says",
                    hint="the model of the driver has changed while it was sent, or the network damages data",
                )
            with _written(self._path.parent):
                sync(self._temporary)  # otherwise the name could reach the disk before the content
                self._temporary.rename(self._path)
                sync(self._path.parent)
        finally:
            self._temporary.unlink(missing_ok=True)


class GatheredSource(TensorSource):
    """The tensors of a stage from several places, each with the digest named by the driver.

    A tensor comes from the first folder of `folders` with the same content under the same name, else from `store`.
    `missing`: the names that neither has; `refresh` looks again after the store received tensors.
    `num_read`: bytes of tensors read so far, from any thread.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        generation_config: Mapping[str, Any],
        wanted: Mapping[str, NamedDigest],
        *,
        store: TensorStore,
        folders: Sequence[FolderSource] = (),
    ) -> None:
        """Hash the tensors of the folders, if the cache does not know their digests. Raises UsageError for a digest, a
        type or a shape that no tensor has."""
        for each in wanted.values():
            check_digest(each)
        self.config = config
        self.generation_config = generation_config
        self.tensors: dict[str, TensorInfo] = {name: each.info for name, each in wanted.items()}
        self._wanted = dict(wanted)
        self._store = store
        self._lock = threading.Lock()
        self.num_read = 0
        self._folder_of: dict[str, FolderSource] = {}
        for folder in folders:
            same = [
                name
                for name, each in wanted.items()
                if name not in self._folder_of and folder.tensors.get(name) == each.info
            ]
            for name, digest in manifest(folder, same).items():
                if digest == wanted[name].sha256:
                    self._folder_of[name] = folder
        self.refresh()

    def refresh(self) -> None:
        self.missing = [
            name for name, each in self._wanted.items() if name not in self._folder_of and not self._store.has(each)
        ]

    def identity(self, section: LayerRange | None = None) -> str:
        digests = sorted((name, each.sha256) for name, each in self._wanted.items() if belongs_by_name(name, section))
        return hashlib.sha256(json.dumps([dict(self.config), digests], sort_keys=True).encode()).hexdigest()

    def read(self, name: str) -> npt.NDArray[Any]:
        self._count(self.tensors[name].nbytes)
        if folder := self._folder_of.get(name):
            return folder.read(name)
        return read_tensor(self._store.path(self._wanted[name]), self.tensors[name], 0)

    def read_bytes(self, name: str, start: int, count: int) -> bytes:
        if folder := self._folder_of.get(name):
            found = folder.read_bytes(name, start, count)
        else:
            found = read_range(self._store.path(self._wanted[name]), self.tensors[name], 0, start, count)
        self._count(len(found))
        return found

    def _count(self, num_bytes: int) -> None:
        with self._lock:
            self.num_read += num_bytes


def belongs_by_name(name: str, section: LayerRange | None) -> bool:
    """Whether a tensor belongs to a section: its name has the number of the layer, or no number."""
    numbers = [int(each) for each in name.split(".") if each.isdecimal()]
    return section is None or (numbers[:1] == [section.first] if section.num_layers else not numbers)


@contextlib.contextmanager
def _written(folder: Path) -> Any:
    try:
        yield
    except OSError as error:
        raise UnavailableError(f"tensors cannot be stored in {folder}: {error}", hint=_HINT) from error
