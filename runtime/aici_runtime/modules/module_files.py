"""The folder of a registry: its files, and how files are added and removed.

{sha256}.wasm              the uploaded module; a module exists while this file exists
{sha256}-sys.json          time, users and visibility of the upload (`owners.py`)
{sha256}-{key}.cwasm       compiled for one wasmtime, one configuration and one kind of processor
{sha256}-{key}-{vocabulary}.memory   a guest of the module that has read a vocabulary (`guests/snapshot.py`)
tags.json                  tag → TagInfo
.lock                      locked during any change
.new-*/                    a module being added; locked by the process that adds the module

A killed process leaves a consistent registry: new files are written apart and become visible by renaming, the .wasm
last. The next `sweep` removes the leftovers.
"""

import os
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from fcntl import LOCK_EX, LOCK_NB, flock
from pathlib import Path

from aici_base.errors import UnavailableError
from aici_runtime.modules.tags import is_module_id

_CHUNK_BYTES = 65536
_ID_CHARS = 64


class ModuleFiles:
    """Any number of threads and processes share the folder. The folder is created on the first write."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.tags = folder / "tags.json"

    def wasm(self, module_id: str) -> Path:
        return self.folder / f"{module_id}.wasm"

    def record(self, module_id: str) -> Path:
        return self.folder / f"{module_id}-sys.json"

    def compiled(self, module_id: str, cache_key: str) -> Path:
        return self.folder / f"{module_id}-{cache_key}.cwasm"

    def snapshot(self, module_id: str, cache_key: str, vocabulary_id: str) -> Path:
        return self.folder / f"{module_id}-{cache_key}-{vocabulary_id}.memory"

    def stored_sizes(self) -> Mapping[str, int]:
        """Return the bytes on disk of all files of a module, by module id: compiled code and snapshots, too."""
        sizes: Counter[str] = Counter()
        with _readable(self.folder):
            for entry in os.scandir(self.folder):
                if is_module_id(entry.name[:_ID_CHARS]):
                    with _readable(Path(entry.path)):
                        status = entry.stat()
                        # A snapshot is sparse.
                        sizes[entry.name[:_ID_CHARS]] += min(status.st_size, status.st_blocks * 512)
        return sizes

    def last_use(self, module_id: str) -> float:
        """Return when the module was last used or changed, in Unix seconds; 0 without files."""
        latest = 0.0
        for path in self.folder.glob(f"{module_id}*"):
            with _readable(path):
                latest = max(latest, path.stat().st_mtime)
        return latest

    def module_ids(self) -> list[str]:
        return [path.stem for path in self.folder.glob("*.wasm") if is_module_id(path.stem)]

    def remove(self, module_id: str) -> None:
        """Remove a module; call inside `changing`. The module is gone as soon as its first file is."""
        self.wasm(module_id).unlink(missing_ok=True)
        for path in self.folder.glob(f"{module_id}-*"):
            path.unlink(missing_ok=True)

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Hold the lock, for moments only. Raise UnavailableError if the folder cannot be written."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            lock = os.open(self.folder / ".lock", os.O_WRONLY | os.O_CREAT, 0o666)
            try:
                flock(lock, LOCK_EX)
                yield
            finally:
                os.close(lock)
        except OSError as error:
            raise _unwritable(self.folder, error) from error

    @contextmanager
    def arriving(self) -> Iterator[Path]:
        """Yield an empty folder for files not to be seen yet; remove the folder afterwards."""
        new = self.folder / f".new-{os.urandom(8).hex()}"
        with self.changing():
            new.mkdir()
            lock = _lock(new)
        try:
            yield new
        except OSError as error:
            raise _unwritable(new, error) from error
        finally:
            shutil.rmtree(new, ignore_errors=True)
            if lock is not None:
                os.close(lock)

    def sweep(self) -> None:
        """Remove the leftovers of killed processes."""
        if not self.folder.is_dir():
            return
        with self.changing():
            for new in self.folder.glob(".new-*"):
                if (lock := _lock(new)) is not None:
                    shutil.rmtree(new, ignore_errors=True)
                    os.close(lock)
            for path in self.folder.iterdir():
                module_id = path.name.partition("-")[0]
                is_orphan = is_module_id(module_id) and not self.wasm(module_id).is_file()
                # A writer of a temporary file in this folder holds the lock, and we hold the lock now: no writer is
                # active.
                if path.name.endswith(".tmp") or ("-" in path.name and is_orphan):
                    path.unlink(missing_ok=True)


def size_of(path: Path) -> int | None:
    """Return the size in bytes; None if the file is missing."""
    with _readable(path):
        return path.stat().st_size
    return None


def content_of(path: Path) -> bytes | None:
    """Return the content; None if the file is missing."""
    with _readable(path):
        return path.read_bytes()
    return None


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    try:
        yield
    except (FileNotFoundError, NotADirectoryError):
        pass
    except OSError as error:
        hint = "AICI_STORE_DIR names another folder"
        raise UnavailableError(f"cannot read {path}: {error.strerror}", hint=hint) from error


def _lock(folder: Path) -> int | None:
    """Return a descriptor that holds the lock until the descriptor is closed or the process ends. Return None if
    another process holds the lock or has just removed the folder."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except FileNotFoundError:
        return None
    try:
        flock(descriptor, LOCK_EX | LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def _unwritable(path: Path, error: OSError) -> UnavailableError:
    hint = "AICI_STORE_DIR names another folder"
    return UnavailableError(f"cannot write {path}: {error.strerror or error}", hint=hint)


def copy_sparse(source: int, target: Path, size_bytes: int) -> None:
    """Copy a file without the parts that are zero. Raise OSError if the source is shorter than `size_bytes`."""
    with target.open("xb") as file:
        for at in range(0, size_bytes, _CHUNK_BYTES):
            chunk = os.pread(source, min(_CHUNK_BYTES, size_bytes - at), at)
            if len(chunk) != min(_CHUNK_BYTES, size_bytes - at):
                raise OSError("the source is too short")
            if chunk.strip(b"\0"):
                file.seek(at)
                file.write(chunk)
        file.truncate(size_bytes)
