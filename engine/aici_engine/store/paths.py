"""Where models are kept and what a model folder looks like."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from fcntl import LOCK_EX, flock
from pathlib import Path

from aici_base.cache_files import default_cache_dir, sync
from aici_base.errors import UnavailableError

ELSEWHERE = "AICI_CACHE_DIR names another folder"


def models_root() -> Path:
    return default_cache_dir() / "models"


def is_model_dir(path: Path) -> bool:
    return (path / "config.json").is_file() and (path / "tokenizer.json").is_file() and any(path.glob("*.safetensors"))


def size_bytes(path: Path) -> int:
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())


@contextmanager
def exclusive(name: str) -> Iterator[None]:
    """One process at a time fetches or converts the model `name`; the others wait and then find it done."""
    try:
        models_root().mkdir(parents=True, exist_ok=True)
        lock = (models_root() / f".{name}.lock").open("w")
    except OSError as err:
        raise UnavailableError(f"models cannot be kept in {models_root()}: {err.strerror}", hint=ELSEWHERE) from err
    with lock:
        flock(lock, LOCK_EX)
        yield


@contextmanager
def scratch(path: Path) -> Iterator[Path]:
    """An empty folder, gone afterwards. Only inside `exclusive`: what a process that was killed left goes first."""
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir()
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


@contextmanager
def appearing(out: Path) -> Iterator[Path]:
    """An empty folder that becomes `out`, whole or not at all, replacing what stands there. Only inside `exclusive`."""
    with scratch(out.with_name(f".{out.name}.tmp")) as staging:
        yield staging
        for path in (*staging.iterdir(), staging):
            sync(path)  # or the name could reach the disk before the content
        shutil.rmtree(out, ignore_errors=True)
        staging.rename(out)
