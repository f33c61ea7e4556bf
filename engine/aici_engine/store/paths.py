"""Where models are kept and what a model folder looks like."""

from collections.abc import Iterator
from contextlib import contextmanager
from fcntl import LOCK_EX, flock
from pathlib import Path

from aici_runtime.cache import default_cache_dir


def models_root() -> Path:
    return default_cache_dir() / "models"


def is_model_dir(path: Path) -> bool:
    return (path / "config.json").is_file() and (path / "tokenizer.json").is_file() and any(path.glob("*.safetensors"))


def size_bytes(path: Path) -> int:
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())


@contextmanager
def exclusive(name: str) -> Iterator[None]:
    """One process at a time fetches or converts the model `name`; the others wait and then find it done."""
    models_root().mkdir(parents=True, exist_ok=True)
    with (models_root() / f".{name}.lock").open("w") as lock:
        flock(lock, LOCK_EX)
        yield
