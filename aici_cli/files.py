"""Files that a user names, read whole, with messages a user can act on."""

import sys
from pathlib import Path

from aici_base.errors import NotFoundError, UsageError


def read_bytes(path: Path, what: str, max_bytes: int) -> bytes:
    """`-` is stdin. UsageError when there is more than `max_bytes`, NotFoundError when it cannot be read."""
    try:
        if str(path) == "-":
            return bounded(sys.stdin.buffer.read(max_bytes + 1), what, max_bytes)
        with path.expanduser().open("rb") as file:
            return bounded(file.read(max_bytes + 1), what, max_bytes)
    except OSError as error:
        raise NotFoundError(f"{what} cannot be read: {path}: {error.strerror}") from error


def read_text(path: Path, what: str, max_bytes: int, *, keep_bom: bool = False) -> str:
    """As `read_bytes`; UsageError when it is not UTF-8. The byte order mark of some editors is no part of the text."""
    try:
        return read_bytes(path, what, max_bytes).decode("utf-8" if keep_bom else "utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"{what} is not UTF-8: {path}: {error.reason} at byte {error.start}") from error


def check_utf8(text: str, what: str) -> None:
    """Of an argument, whose odd bytes Python keeps as surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise UsageError(f"{what} is not UTF-8 at character {error.start}") from error


def bounded(content: bytes, what: str, max_bytes: int) -> bytes:
    if len(content) > max_bytes:
        raise UsageError(f"{what} is larger than {max_bytes >> 20} MiB")
    return content
