"""Find the part of a JSON text that a JSON pointer names."""

import json
import re
from typing import Final

_DECODER: Final = json.JSONDecoder(strict=False)
_SPACE: Final = re.compile(r"[ \t\r\n]*")


def place_of_pointer(text: str, pointer: str) -> tuple[int, int]:
    """Return line and column, from 1, of the value at `pointer` (RFC 6901) in `text`.

    The nearest value around stands in for a value that is missing; the result is (0, 0) if `text` is not JSON.
    """
    try:
        return line_and_column(text, _offset(text, pointer))
    except (ValueError, RecursionError, IndexError):
        return 0, 0


def line_and_column(text: str, offset: int) -> tuple[int, int]:
    """Return line and column, from 1, of a character. Lines end with a line feed."""
    return text.count("\n", 0, offset) + 1, offset - text.rfind("\n", 0, offset)


def _offset(text: str, pointer: str) -> int:
    at = _skip(text, 0)
    _DECODER.raw_decode(text, at)
    for part in pointer.split("/")[1:]:
        inner = _member(text, at, part.replace("~1", "/").replace("~0", "~"))
        if inner is None:
            return at
        at = inner
    return at


def _member(text: str, at: int, name: str) -> int | None:
    """Return the offset of a member or an element of the value at `at`, which is well-formed."""
    closing = {"{": "}", "[": "]"}.get(text[at])
    if closing is None:
        return None
    index, at = 0, _skip(text, at + 1)
    while text[at] != closing:
        key = str(index)
        if closing == "}":
            key, end = _DECODER.raw_decode(text, at)
            at = _skip(text, _skip(text, end) + 1)
        if key == name:
            return at
        _, end = _DECODER.raw_decode(text, at)
        at = _skip(text, end)
        if text[at] == ",":
            at = _skip(text, at + 1)
        index += 1
    return None


def _skip(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return at if found is None else found.end()
