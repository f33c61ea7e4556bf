"""Where the runtime keeps what it can make again, and how it writes there: to a new name, then renamed."""

import os
from pathlib import Path

from aici_base.errors import UnavailableError


def default_cache_dir() -> Path:
    """`$AICI_CACHE_DIR`, else `$XDG_CACHE_HOME/aici`, else `~/.cache/aici`. Not created here."""
    if own := os.environ.get("AICI_CACHE_DIR"):
        return Path(own).expanduser().absolute()
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser().absolute() / "aici"


def default_store_dir() -> Path:
    """`$AICI_STORE_DIR`, else `modules` in the cache folder: uploaded controllers and their tags. Not created here."""
    if own := os.environ.get("AICI_STORE_DIR"):
        return Path(own).expanduser().absolute()
    return default_cache_dir() / "modules"


def write_atomically(
    path: Path, content: bytes | memoryview, *, hint: str = "AICI_CACHE_DIR names another folder"
) -> None:
    """Readers see the old file or the new one, after a loss of power too. A file that a guest has mapped is never
    changed in place (SIGBUS). Raises UnavailableError where nothing can be written."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{os.urandom(4).hex()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            temporary.write_bytes(content)
            sync(temporary)  # or the name could reach the disk before the content
            temporary.rename(path)
            sync(path.parent)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise UnavailableError(f"cannot write {path}: {error.strerror}", hint=hint) from error


def sync(path: Path) -> None:
    """Returns when the disk has what the file, or the folder, holds now."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
