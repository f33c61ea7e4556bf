"""The metadata of a GGUF file: keys and values, without the tensors. The format is that of ggml's `gguf.md`, v2 and 3.

The package `gguf` reads it too, and brings numpy, which the runtime has no other use for.
"""

import struct
from collections.abc import Callable
from mmap import ACCESS_READ, mmap
from pathlib import Path

from aici_runtime.errors import UsageError

MAGIC = b"GGUF"
Value = bool | int | float | str | list["Value"]

_VERSIONS = (2, 3)
_STRING, _ARRAY = 8, 9
_SCALARS = {
    number: struct.Struct(f"<{code}")
    for number, code in {
        0: "B",
        1: "b",
        2: "H",
        3: "h",
        4: "I",
        5: "i",
        6: "f",
        7: "?",
        10: "Q",
        11: "q",
        12: "d",
    }.items()
}
_U32, _U64 = _SCALARS[4], _SCALARS[10]


def read_metadata(path: Path) -> dict[str, Value]:
    """Raises UsageError for what is no GGUF file, and for one that ends too early."""
    try:
        with path.open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as content:
            return _Reader(content).metadata()
    except (ValueError, struct.error, RecursionError, MemoryError) as error:
        raise UsageError(f"{path} cannot be read as a GGUF file: {error}") from error


class _Reader:
    """A position in the file. Beyond its end, `unpack_from` and `_text` raise."""

    def __init__(self, content: mmap) -> None:
        self._content = content
        self._at = 0

    def metadata(self) -> dict[str, Value]:
        magic, version = self._content[:4], struct.unpack_from("<I", self._content, 4)[0]
        if magic != MAGIC or version not in _VERSIONS:
            raise ValueError(f"magic {magic!r}, version {version}; versions 2 and 3, little-endian, can be read")
        self._at = 16  # after the number of tensors
        return {self._text(): self._value() for _ in range(self._number(_U64))}

    def _number(self, kind: struct.Struct) -> int:
        (value,) = kind.unpack_from(self._content, self._at)
        self._at += kind.size
        return int(value)

    def _value(self) -> Value:
        return self._reader(self._number(_U32))()

    def _reader(self, kind: int) -> Callable[[], Value]:
        if kind == _STRING:
            return self._text
        if kind == _ARRAY:
            return self._array
        if kind not in _SCALARS:
            raise ValueError(f"a value of the unknown type {kind} at byte {self._at}")
        return lambda: self._scalar(_SCALARS[kind])

    def _scalar(self, kind: struct.Struct) -> Value:
        (value,) = kind.unpack_from(self._content, self._at)
        self._at += kind.size
        return value  # type: ignore[no-any-return]

    def _text(self) -> str:
        start = self._at + _U64.size
        end = start + self._number(_U64)
        if end > len(self._content):
            raise ValueError(f"a text of {end - start} bytes at byte {start} goes beyond the end")
        self._at = end
        return self._content[start:end].decode("utf-8", "replace")

    def _array(self) -> list[Value]:
        kind, length = self._number(_U32), self._number(_U64)
        if length > len(self._content):
            raise ValueError(f"an array of {length} values at byte {self._at} goes beyond the end")
        read = self._reader(kind)
        return [read() for _ in range(length)]
