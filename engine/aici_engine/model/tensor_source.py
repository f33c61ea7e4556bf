"""Where a model's configuration and tensors come from, one tensor at a time."""

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from aici_base.errors import UsageError
from aici_engine.arrays import BF16_BITS, reserve
from aici_engine.model.stage_range import LayerRange
from aici_engine.model_check import read_model_config
from aici_engine.model_files import file_states, read_settings

_HINT: Final = "the download may be incomplete: fetch it again"
_MAX_HEADER: Final = 100_000_000
"""Bytes; the limit of the safetensors library."""
_LARGE_BYTES: Final = 1 << 18
DTYPES: Final[Mapping[str, np.dtype[Any]]] = {
    "F64": np.dtype(np.float64),
    "F32": np.dtype(np.float32),
    "F16": np.dtype(np.float16),
    "BF16": BF16_BITS,
    "I64": np.dtype(np.int64),
    "I32": np.dtype(np.int32),
    "I16": np.dtype(np.int16),
    "I8": np.dtype(np.int8),
    "U8": np.dtype(np.uint8),
    "BOOL": np.dtype(np.bool_),
    "F8_E4M3": np.dtype(np.uint8),
    "F8_E5M2": np.dtype(np.uint8),
}
"""The number types of safetensors by name in the format. Types that numpy lacks are read as bits."""


class TensorInfo(NamedTuple):
    """`dtype`: a key of `DTYPES`. The shape may be empty: one number."""

    dtype: str
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * DTYPES[self.dtype].itemsize


class TensorSource(Protocol):
    """The files of a model: `config` is config.json, `generation_config` is generation_config.json or empty.

    `tensors`: names and shapes of all tensors that the source has. Nothing of their content is in memory.
    """

    config: Mapping[str, Any]
    generation_config: Mapping[str, Any]
    tensors: Mapping[str, TensorInfo]

    def identity(self, section: LayerRange | None = None) -> str:
        """Identify configuration and content of the tensors: different content has a different identity.

        `section`: one layer, or embedding and head without layers. Sources with other tensors beside the section's may
        have the same identity. None: all tensors.
        """

    def read(self, name: str) -> npt.NDArray[Any]:
        """Read one tensor into memory of its own, and nothing else of the model.

        Raises KeyError for a name that is not in `tensors`, UsageError if the content cannot be read.
        """

    def read_bytes(self, name: str, start: int, count: int) -> bytes:
        """Read at most `count` bytes of one tensor, from its byte `start`. Raises as `read`."""


class _Place(NamedTuple):
    path: Path
    start: int


class FolderSource(TensorSource):
    """A model folder in Hugging Face layout, with safetensors files. A GGUF file is converted to such a folder first.

        >>> source = FolderSource(folder)
        >>> source.tensors["model.norm.weight"]
        TensorInfo(dtype='F32', shape=(32,))
        >>> source.read("model.norm.weight").shape
        (32,)

    A read copies the bytes of one tensor from the file to new memory. The file is not mapped: a mapped file that
    somebody replaces would end the process.
    """

    def __init__(self, folder: Path) -> None:
        """Read the headers of all safetensors files. Raises UsageError for a file that is missing or damaged."""
        self.folder = folder
        self.config = read_model_config(folder)
        self.generation_config = read_settings(folder / "generation_config.json")
        self.tensors: dict[str, TensorInfo] = {}
        self._places: dict[str, _Place] = {}
        for path in _files(folder):
            for name, (info, start) in read_header(path).items():
                self.tensors[name], self._places[name] = info, _Place(path, start)

    def identity(self, section: LayerRange | None = None) -> str:  # noqa: ARG002 a file holds several layers
        """Return the path of the folder, with sizes and modification times of its files."""
        return f"{self.folder.resolve()} {file_states(self.folder)}"

    def read(self, name: str) -> npt.NDArray[Any]:
        path, start = self._places[name]
        return read_tensor(path, self.tensors[name], start)

    def read_bytes(self, name: str, start: int, count: int) -> bytes:
        path, first = self._places[name]
        return read_range(path, self.tensors[name], first, start, count)

    def file_of(self, name: str) -> Path:
        """Return the file that holds the tensor `name`."""
        return self._places[name].path


def read_header(path: Path) -> dict[str, tuple[TensorInfo, int]]:
    """Return the tensors of a safetensors file by name, each with the position of its first byte in the file.

    Format: the length of the header in 8 bytes (little endian), the header in JSON, then the bytes of the tensors.
    Raises UsageError for another file.
    """
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            length = int.from_bytes(file.read(8), "little")
            if not 2 <= length <= min(size - 8, _MAX_HEADER):
                raise ValueError(f"the header cannot have {length} bytes")
            header = json.loads(file.read(length))
        found = {}
        for name, entry in header.items():
            if name == "__metadata__":
                continue
            info = TensorInfo(entry["dtype"], tuple(entry["shape"]))
            first, last = entry["data_offsets"]
            if not all(type(n) is int and n >= 0 for n in (*info.shape, first, last)):
                raise ValueError(f"a size of {name} is no whole number")
            if last - first != info.nbytes or not 0 <= first <= last <= size - 8 - length:
                raise ValueError(f"the bytes of {name} are not where the header says")
            found[name] = info, 8 + length + first
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UsageError(f"{path} cannot be read as safetensors: {error!r}", hint=_HINT) from error
    return found


def read_tensor(path: Path, info: TensorInfo, start: int) -> npt.NDArray[Any]:
    """Read the bytes of one tensor, from position `start` of the file. Raises UsageError if the file is too short."""
    content = _memory(info.nbytes)
    if info.nbytes:
        try:
            with path.open("rb", buffering=0) as file:
                file.seek(start)
                view, done = content.data, 0
                while done < len(view):
                    count = file.readinto(view[done:])  # at most 2 GiB a call
                    if not count:
                        raise EOFError("the file ends too early")
                    done += count
        except (OSError, EOFError) as error:
            raise UsageError(f"{path} cannot be read: {error}", hint=_HINT) from error
    return content.view(DTYPES[info.dtype]).reshape(info.shape)


def _memory(num_bytes: int) -> npt.NDArray[np.uint8]:
    """Allocate memory for a tensor. A large tensor gets pages of its own, which go back to the system with the tensor;
    the C library would keep them for later."""
    return np.empty(num_bytes, np.uint8) if num_bytes < _LARGE_BYTES else reserve((num_bytes,), np.uint8)


def read_range(path: Path, info: TensorInfo, first: int, start: int, count: int) -> bytes:
    """Read `count` bytes from byte `start` of a tensor, but not beyond its end. `first`: its position in the file.

    Raises UsageError if the file is too short.
    """
    count = max(0, min(count, info.nbytes - start))
    try:
        with path.open("rb", buffering=0) as file:
            found = os.pread(file.fileno(), count, first + start)
            if len(found) != count:
                raise EOFError("the file ends too early")
    except (OSError, EOFError) as error:
        raise UsageError(f"{path} cannot be read: {error}", hint=_HINT) from error
    return found


def _files(folder: Path) -> list[Path]:
    """Return the files with the weights: as transformers, one file, else the files of the index."""
    whole, index = folder / "model.safetensors", folder / "model.safetensors.index.json"
    if whole.is_file():
        return [whole]
    places = read_settings(index).get("weight_map")
    if not isinstance(places, dict) or not places:
        raise UsageError(f"{folder} has no weights in safetensors files", hint=_HINT)
    names = sorted({str(name) for name in places.values()})
    if any(Path(name).name != name for name in names):
        raise UsageError(f"{index} names files outside the folder", hint=_HINT)
    return [folder / name for name in names]
