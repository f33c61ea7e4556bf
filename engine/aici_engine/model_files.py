"""The files beside a model's weights. Files may be edited by hand, or cut off by a download."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aici_base.errors import UsageError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

MAX_SETTINGS_BYTES = 64 << 20
"""The indexes of the largest models have some 15 MB."""
_HINT = "the download may be incomplete: fetch it again"


def read_settings(path: Path) -> dict[str, Any]:
    """Return the JSON object in `path`; an empty dict without the file. Raises UsageError for bad contents."""
    if not path.is_file():
        return {}
    try:
        if (size := path.stat().st_size) > MAX_SETTINGS_BYTES:
            problem = f"{path} has {size:,} bytes: at most {MAX_SETTINGS_BYTES:,} are read"
            raise UsageError(problem, hint="the settings of a model are shorter: fetch the file again")
        found = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"{path} cannot be read as JSON: {error}", hint=_HINT) from error
    if not isinstance(found, dict):
        raise UsageError(f"{path} holds a {type(found).__name__}, not an object", hint=_HINT)
    return found


def read_tokenizer(path: Path) -> "Tokenizer":
    """Return the tokenizer, with truncation and padding switched off. Raises UsageError for a bad file."""
    from tokenizers import Tokenizer

    try:
        tokenizer = Tokenizer.from_file(str(path))
    except (KeyboardInterrupt, MemoryError):
        raise
    except BaseException as error:  # the library raises plain Exception, and PanicException, which is no Exception
        raise UsageError(f"{path} cannot be loaded as a tokenizer: {error}", hint=_HINT) from error
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def file_states(folder: Path) -> list[tuple[str, int, int]]:
    """Return names, sizes and modification times (ns) of the settings and weights in `folder`.

    They identify the content: hashing gigabytes on every start would take seconds.
    """
    files = sorted([*folder.glob("*.json"), *folder.glob("*.safetensors")])
    return [(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files]
