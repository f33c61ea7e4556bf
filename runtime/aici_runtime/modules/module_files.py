"""The folder of a registry: which files there are, and how they come and go.

{sha256}.wasm              what was uploaded; a module is there while this file is
{sha256}-sys.json          when and by whom
{sha256}-{key}.cwasm       compiled, for one wasmtime, one configuration and one kind of processor
tags.json                  tag → TagInfo
.lock                      held by whoever changes any of these
.new-*/                    a module on its way in; locked by who brings it

Whoever is killed leaves a registry that is right: what is on its way lies apart, and becomes visible by renaming, the
.wasm last. What such a one leaves behind goes with the next `sweep`.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from fcntl import LOCK_EX, LOCK_NB, flock
from pathlib import Path

from aici_base.errors import UnavailableError
from aici_runtime.modules.tags import is_module_id


class ModuleFiles:
    """Any number of threads and processes share the folder. It need not exist before something is to be written."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.tags = folder / "tags.json"

    def wasm(self, module_id: str) -> Path:
        return self.folder / f"{module_id}.wasm"

    def record(self, module_id: str) -> Path:
        return self.folder / f"{module_id}-sys.json"

    def compiled(self, module_id: str, cache_key: str) -> Path:
        return self.folder / f"{module_id}-{cache_key}.cwasm"

    def module_ids(self) -> list[str]:
        return [path.stem for path in self.folder.glob("*.wasm") if is_module_id(path.stem)]

    def remove(self, module_id: str) -> None:
        """Inside `changing`. It is gone with the first file."""
        self.wasm(module_id).unlink(missing_ok=True)
        for path in self.folder.glob(f"{module_id}-*"):
            path.unlink(missing_ok=True)

    @contextmanager
    def changing(self) -> Iterator[None]:
        """One at a time; for moments only. Raises UnavailableError where nothing can be written."""
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
        """An empty folder for files that are not to be seen yet; gone afterwards."""
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
        """Remove what those left behind that were killed."""
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
                # Whoever writes a temporary file here has the lock, which we have.
                if path.name.endswith(".tmp") or ("-" in path.name and is_orphan):
                    path.unlink(missing_ok=True)


def size_of(path: Path) -> int | None:
    """None when it is not there."""
    with _readable(path):
        return path.stat().st_size
    return None


def content_of(path: Path) -> bytes | None:
    """None when it is not there."""
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
    """A descriptor that holds the lock until it is closed, or its process ends; None when somebody else has it, or has
    just removed the folder."""
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
