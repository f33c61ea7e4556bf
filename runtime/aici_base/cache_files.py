"""The folders for cached files and uploaded controllers, and atomic writes into them."""

import contextlib
import os
import time
from pathlib import Path

from aici_base.errors import UnavailableError


def default_cache_dir() -> Path:
    """Return `$AICI_CACHE_DIR`, else `$XDG_CACHE_HOME/aici`, else `~/.cache/aici`. The folder may not exist yet.

    >>> default_cache_dir().is_absolute()
    True
    """
    if own := os.environ.get("AICI_CACHE_DIR"):
        return Path(own).expanduser().absolute()
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser().absolute() / "aici"


def default_store_dir() -> Path:
    """Return the folder of uploaded controllers and their tags: `$AICI_STORE_DIR`, else `modules` in the cache folder.

    >>> default_store_dir().is_absolute()
    True
    """
    if own := os.environ.get("AICI_STORE_DIR"):
        return Path(own).expanduser().absolute()
    return default_cache_dir() / "modules"


def write_atomically(
    path: Path, content: bytes | memoryview, *, hint: str = "AICI_CACHE_DIR names another folder"
) -> None:
    """Write to a temporary name, then rename: readers see the old file or the new file, even after a loss of power. A
    file mapped by a guest must never change in place (SIGBUS).

        >>> write_atomically(folder / "greeting.txt", b"hello")
        >>> (folder / "greeting.txt").read_bytes()
        b'hello'

    Raise UnavailableError with `hint` if the folder cannot be written.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{os.urandom(4).hex()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            temporary.write_bytes(content)
            sync(temporary)  # otherwise the name could reach the disk before the content
            temporary.rename(path)
            sync(path.parent)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise UnavailableError(f"cannot write {path}: {error.strerror}", hint=hint) from error


def mark_used(path: Path) -> None:
    """Tell `remove_unused` that a process has read the file. Does nothing in a folder that cannot be written."""
    with contextlib.suppress(OSError):
        os.utime(path)


def remove_unused(folder: Path, pattern: str, *, num_days: int) -> None:
    """Delete the files of `pattern` that no process has written or marked as used for so many days.

    >>> remove_unused(folder, "*.txt", num_days=14)
    """
    with contextlib.suppress(OSError):
        for path in folder.glob(pattern):
            if path.stat().st_mtime < time.time() - num_days * 86_400:
                path.unlink(missing_ok=True)


def sync(path: Path) -> None:
    """Wait until the disk has the current content of a file or folder."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
