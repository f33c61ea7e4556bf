"""The folder of converted models, and safe ways to write to the folder."""

import contextlib
import os
import shutil
from collections.abc import Iterator
from fcntl import LOCK_EX, LOCK_SH, flock
from pathlib import Path

from aici_base.cache_files import default_cache_dir, sync
from aici_base.errors import UnavailableError

ELSEWHERE = "set AICI_CACHE_DIR to another folder"


def models_root() -> Path:
    return default_cache_dir() / "models"


def is_model_dir(path: Path) -> bool:
    return (path / "config.json").is_file() and (path / "tokenizer.json").is_file() and any(path.glob("*.safetensors"))


def size_bytes(path: Path) -> int:
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())


@contextlib.contextmanager
def exclusive(name: str) -> Iterator[None]:
    """Lock the model `name`: one process at a time fetches or converts the model, and other processes wait.

    Raises UnavailableError if the cache folder cannot be written.
    """
    try:
        models_root().mkdir(parents=True, exist_ok=True)
        lock = (models_root() / f".{name}.lock").open("w")
    except OSError as err:
        raise UnavailableError(f"models cannot be stored in {models_root()}: {err.strerror}", hint=ELSEWHERE) from err
    with lock:
        flock(lock, LOCK_EX)
        yield


@contextlib.contextmanager
def scratch(path: Path) -> Iterator[Path]:
    """An empty folder at `path`, deleted at the end.

    Only inside `exclusive`: leftovers of a killed process are deleted.
    """
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir()
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


@contextlib.contextmanager
def atomic_folder(out: Path) -> Iterator[Path]:
    """An empty folder that replaces `out` at the end; after an exception, `out` is unchanged.

    Only inside `exclusive`.
    """
    with scratch(out.with_name(f".{out.name}.tmp")) as staging:
        yield staging
        for path in (*staging.iterdir(), staging):
            sync(path)  # the content must reach the disk before the name
        shutil.rmtree(out, ignore_errors=True)
        staging.rename(out)


@contextlib.contextmanager
def in_use(folder: Path) -> Iterator[None]:
    """Keep `aici models rm` from removing the model in `folder`. The end of the process ends the use, too."""
    with opened_folder(folder) as descriptor:
        # A model is used by many at a time; only a removal excludes them, for a moment.
        flock(descriptor, LOCK_SH)
        yield


@contextlib.contextmanager
def opened_folder(folder: Path) -> Iterator[int]:
    """Open a folder itself, to lock it."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
