"""Where the runtime keeps what it can make again, and how it writes there: to a new name, then renamed."""

import os
from pathlib import Path

from aici_runtime.errors import UnavailableError


def default_cache_dir() -> Path:
    """`$AICI_CACHE_DIR`, else `$XDG_CACHE_HOME/aici`, else `~/.cache/aici`. Not created here."""
    if own := os.environ.get("AICI_CACHE_DIR"):
        return Path(own).expanduser().absolute()
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser().absolute() / "aici"


def write_atomically(path: Path, content: bytes, *, hint: str = "AICI_CACHE_DIR names another folder") -> None:
    """Readers see the old file or the new one. A file that a guest has mapped is never changed in place (SIGBUS).
    Raises UnavailableError where nothing can be written."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{os.urandom(4).hex()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            temporary.write_bytes(content)
            temporary.rename(path)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise UnavailableError(f"cannot write {path}: {error.strerror}", hint=hint) from error
