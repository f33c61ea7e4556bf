"""Read the start of a GGUF file: metadata, and the positions of tensors. The format is ggml's `gguf.md`, versions 2 and
3.

The package `gguf` reads the format too, but needs numpy, which the runtime does not use otherwise.
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass, replace
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import TypeVar

from aici_base.errors import UsageError

MAGIC = b"GGUF"
Value = bool | int | float | str | list["Value"]
T = TypeVar("T")

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
_MAX_DIMENSIONS = 4
INCOMPLETE = "the download may be incomplete: fetch the file again"


@dataclass(frozen=True, slots=True)
class Tensor:
    """`shape`: innermost dimension first. `kind`: ggml's number of the element type. `start`: byte offset in the
    file."""

    name: str
    shape: tuple[int, ...]
    kind: int
    start: int


def read_metadata(path: Path) -> dict[str, Value]:
    """Return the metadata of a GGUF file by key.

        >>> read_metadata(gguf_file)["general.architecture"]
        'llama'

    Raise UsageError if the file is not a GGUF file or ends too early.
    """
    return _read(path, lambda reader: reader.metadata())


def read_header(path: Path) -> tuple[dict[str, Value], list[Tensor]]:
    """Return the metadata, and the tensors with their positions as the file states them. Raise UsageError as
    `read_metadata`."""

    def read(reader: "_GgufReader") -> tuple[dict[str, Value], list[Tensor]]:
        metadata = reader.metadata()
        return metadata, reader.tensors(metadata)

    return _read(path, read)


def _read(path: Path, read: "Callable[[_GgufReader], T]") -> T:
    try:
        with path.open("rb") as file:
            if not file.read(1):
                raise UsageError(f"{path} cannot be read as a GGUF file: the file is empty", hint=INCOMPLETE)
            with mmap(file.fileno(), 0, access=ACCESS_READ) as content:
                return read(_GgufReader(content))
    except struct.error as error:
        raise UsageError(f"{path} is cut off: the file ends before the tensors begin", hint=INCOMPLETE) from error
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError, MemoryError) as error:
        raise UsageError(f"{path} cannot be read as a GGUF file: {error}") from error


class _GgufReader:
    """A read position in the file. Reading beyond the end raises."""

    def __init__(self, content: mmap) -> None:
        self._content = content
        self._at = 0
        self._num_tensors = 0

    def metadata(self) -> dict[str, Value]:
        magic, version = self._content[:4], struct.unpack_from("<I", self._content, 4)[0]
        if magic != MAGIC or version not in _VERSIONS:
            raise ValueError(f"magic {magic!r}, version {version}; only versions 2 and 3, little-endian, are supported")
        self._at = 8
        self._num_tensors = self._number(_U64)
        return {self._text(): self._value() for _ in range(self._number(_U64))}

    def tensors(self, metadata: dict[str, Value]) -> list[Tensor]:
        """Call after `metadata`, which may define the alignment of tensor data."""
        found = [self._tensor() for _ in range(self._num_tensors)]
        alignment = metadata.get("general.alignment", 32)
        if type(alignment) is not int or alignment < 1:
            raise ValueError(f"invalid alignment of tensors: {alignment!r}")
        begin = -(-self._at // alignment) * alignment
        return [replace(tensor, start=begin + tensor.start) for tensor in found]

    def _tensor(self) -> Tensor:
        """Read a tensor; `start` is relative to the tensor data."""
        name, num_dimensions = self._text(), self._number(_U32)
        if num_dimensions > _MAX_DIMENSIONS:
            raise ValueError(f"{name!r} has {num_dimensions} dimensions")
        shape = tuple(self._number(_U64) for _ in range(num_dimensions)) or (1,)
        if 0 in shape:
            raise ValueError(f"the tensor {name!r} is empty")
        return Tensor(name, shape, self._number(_U32), self._number(_U64))

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
