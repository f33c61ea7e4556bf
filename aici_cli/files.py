"""Files that a user names, read whole. Messages name the file and say what to do."""

import sys
from pathlib import Path

from aici_base.errors import NotFoundError, UsageError

MAX_WASM_BYTES = 128 << 20
MAX_TEXT_BYTES = 4 << 20


def read_bytes(path: Path, what: str, max_bytes: int) -> bytes:
    """Return the content of a file; `-` is stdin.

    Raise UsageError if the file is larger than `max_bytes`, and NotFoundError if the file cannot be read.
    """
    try:
        if str(path) == "-":
            return bounded(sys.stdin.buffer.read(max_bytes + 1), what, max_bytes)
        with path.expanduser().open("rb") as file:
            return bounded(file.read(max_bytes + 1), what, max_bytes)
    except OSError as error:
        raise NotFoundError(f"{what} cannot be read: {path}: {error.strerror}") from error


def read_text(path: Path, what: str, max_bytes: int, *, keep_bom: bool = False) -> str:
    """Return the text of a file, as `read_bytes` reads the file. Raise UsageError if the content is not UTF-8.

    Unless `keep_bom`, the byte order mark that some editors write first is left out.
    """
    try:
        return read_bytes(path, what, max_bytes).decode("utf-8" if keep_bom else "utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"{what} is not UTF-8: {path}: {error.reason} at byte {error.start}") from error


def read_wasm(path: Path) -> bytes:
    """Return the content of a .wasm file. Raise UsageError if the file is not a WebAssembly module."""
    from aici_runtime.modules.wasm_bytes import check_wasm

    wasm = read_bytes(path, f"controller {path}", MAX_WASM_BYTES)
    if path.suffix in (".py", ".js"):
        raise UsageError(f"{path} is a script, not a WebAssembly module", hint=f"aici run {path} runs it")
    check_wasm(wasm, str(path))
    return wasm


def check_utf8(text: str, what: str) -> None:
    """Raise UsageError for an argument whose bytes were not UTF-8: Python keeps such bytes as surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise UsageError(f"{what} is not UTF-8 at character {error.start}") from error


def bounded(content: bytes, what: str, max_bytes: int) -> bytes:
    """Return `content`. Raise UsageError if `content` is larger than `max_bytes`."""
    if len(content) > max_bytes:
        raise UsageError(f"{what} is larger than {max_bytes >> 20} MiB")
    return content
