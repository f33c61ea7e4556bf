"""The files beside a model's weights. Files may be edited by hand, or cut off by a download."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from aici_base.errors import UsageError
from aici_runtime.tokenizer.tokenizer_check import check_tokenizer

if TYPE_CHECKING:
    from tokenizers import Tokenizer

MAX_SETTINGS_BYTES: Final = 64 << 20
"""The indexes of the largest models have some 15 MB."""
_MAX_VALUES: Final = 2_000_000
"""Python's lists and dicts take up to thirty times the size of the file."""
_MAX_TEXT_BYTES: Final = 1 << 20
_HINT: Final = "the download may be incomplete: fetch it again"


def read_settings(path: Path) -> dict[str, Any]:
    """Return the JSON object in `path`; an empty dict without the file. Raises UsageError for bad contents."""
    if not path.is_file():
        return {}
    try:
        content = _content(path, MAX_SETTINGS_BYTES)
        if (num_values := sum(map(content.count, b"[{,"))) > _MAX_VALUES:
            problem = f"{path} has {num_values:,} values or more: at most {_MAX_VALUES:,} are read"
            raise UsageError(problem, hint="the settings of a model have fewer: fetch the file again")
        found = json.loads(content)
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"{path} cannot be read as JSON: {error}", hint=_HINT) from error
    if not isinstance(found, dict):
        raise UsageError(f"{path} holds a {type(found).__name__}, not an object", hint=_HINT)
    return found


def read_text(path: Path) -> str | None:
    """Return the text in `path`; None without the file. Raises UsageError for a bad file."""
    if not path.is_file():
        return None
    try:
        return _content(path, _MAX_TEXT_BYTES).decode()
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} cannot be read as UTF-8: {error}", hint=_HINT) from error


def read_tokenizer(path: Path) -> "Tokenizer":
    """Return the tokenizer, with truncation and padding switched off. Raises UsageError for a bad file."""
    from tokenizers import Tokenizer

    check_tokenizer(path)
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except (KeyboardInterrupt, MemoryError):
        raise
    except BaseException as error:  # the library raises plain Exception, and PanicException, which is no Exception
        raise UsageError(f"{path} cannot be loaded as a tokenizer: {error}", hint=_HINT) from error
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def check_model_files(folder: Path) -> None:
    """Raise UsageError for a small file of a model's folder that leads elsewhere, is too large, or holds a tokenizer
    that would do harm."""
    for path in sorted([*folder.glob("*.json"), *folder.glob("*.jinja"), *folder.glob("*/*.jinja")]):
        if path.is_file():
            check_place(path)
    tokenizer = folder / "tokenizer.json"
    if tokenizer.is_file():
        check_tokenizer(tokenizer)


def check_place(path: Path) -> None:
    """Raise UsageError for a link to a file outside of the link's folder: its content could reach clients.

    The links of the hub's cache are known: from `snapshots/COMMIT` to `blobs` beside it.
    """
    if not path.is_symlink():
        return
    target, folder = path.resolve(), path.parent.resolve()
    is_blob = target.parent.name == "blobs" and target.parent.parent / "snapshots" in folder.parents
    if folder not in target.parents and not is_blob:
        raise UsageError(
            f"{path} is a link to a file outside of its folder",
            hint="if the file is yours, copy it into the folder in place of the link",
        )


def _content(path: Path, most: int) -> bytes:
    """Return the bytes of a file. Raises UsageError for a link that leads elsewhere, and for too many bytes."""
    check_place(path)
    if (size := path.stat().st_size) > most:
        problem = f"{path} has {size:,} bytes: at most {most:,} are read"
        raise UsageError(problem, hint="the settings of a model are shorter: fetch the file again")
    return path.read_bytes()


def file_states(folder: Path) -> list[tuple[str, int, int]]:
    """Return names, sizes and modification times (ns) of the settings and weights in `folder`.

    They identify the content: hashing gigabytes on every start would take seconds.
    """
    files = sorted([*folder.glob("*.json"), *folder.glob("*.safetensors")])
    return [(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files]
