"""The weights of a model, or of a range of its layers, in the layout of the kernels: blocks of memory, or a file."""

import contextlib
import dataclasses
import itertools
import json
import math
import mmap
import os
import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from aici_base.cache_files import write_atomically
from aici_engine.model.stage_range import LayerRange
from aici_engine.native.bindings import Format
from aici_engine.native.decoder_config import DecoderConfig, join
from aici_engine.native.matrix_layout import ArrayKind

if TYPE_CHECKING:
    from aici_engine.model.huggingface_stage import HuggingFaceStage

_ALIGNED: Final = 64
_TRAILER: Final = struct.Struct("<QQI")
"""The end of a file: length of the file, length of the JSON description before the trailer, CRC-32 of the description.
"""


Layout = Mapping[str, tuple[str, list[int], int]]
"""Of arrays by name: type of numpy, shape, and the first byte in the block."""


class Description(NamedTuple):
    """What a file of packed weights holds: `num_bytes` bytes of tensors."""

    config: DecoderConfig
    layout: Layout
    num_bytes: int

    @classmethod
    def read(cls, path: Path) -> Self:
        """Raises OSError if the file cannot be read, ValueError if the file is damaged."""
        with path.open("rb") as file:
            file.seek(-_TRAILER.size, os.SEEK_END)
            size, length, checksum = _TRAILER.unpack(file.read())
            num_bytes = size - length - _TRAILER.size
            file.seek(max(0, num_bytes))
            text = file.read()[: -_TRAILER.size]
        if size != path.stat().st_size or checksum != zlib.crc32(text):
            raise ValueError(f"{path} is damaged")
        description = json.loads(text)
        config = description["config"]
        config |= {"weight_format": Format(config["weight_format"]), "part": LayerRange(**config["part"])}
        return cls(DecoderConfig(**config), description["tensors"], num_bytes)


@dataclass(frozen=True, slots=True)
class PackedWeights:
    """`tensors`: views of `blocks`, with the names of `from_transformers.extract`; bf16 as its bits."""

    config: DecoderConfig
    tensors: Mapping[str, npt.NDArray[Any]]
    blocks: tuple[mmap.mmap, ...]

    @property
    def num_bytes(self) -> int:
        return sum(map(len, self.blocks))

    @classmethod
    def of(cls, model: "HuggingFaceStage", weights: Format) -> Self:
        """Pack a model without `unsupported_reason`. `weights`: the format of the layers."""
        # Imported here: it needs torch.
        from aici_engine.native import from_transformers

        return cls.lay_out(*from_transformers.extract(model, weights, model.part))

    @classmethod
    def lay_out(cls, config: DecoderConfig, tensors: dict[str, npt.NDArray[Any]]) -> Self:
        """Move `tensors` into one block. The dictionary is emptied on the way, so that no weight is in memory twice."""
        packed = cls.reserve(config, {name: (tensor.dtype, tensor.shape) for name, tensor in tensors.items()})
        for name, view in packed.tensors.items():
            view[...] = tensors.pop(name)
        return packed

    @classmethod
    def reserve(cls, config: DecoderConfig, kinds: Mapping[str, ArrayKind]) -> Self:
        """Reserve one block for tensors, which the caller fills. Memory is taken as the tensors are written."""
        layout, end = {}, 0
        for name, (dtype, shape) in kinds.items():
            layout[name] = (str(dtype), list(shape), end)
            end += -(-dtype.itemsize * math.prod(shape) // _ALIGNED) * _ALIGNED
        return cls._allocate(config, layout, end)

    @classmethod
    def joined(cls, sections: Sequence[Self], part: LayerRange) -> Self:
        """Return the weights of `part` from those of its sections, in layer order. Nothing is copied.

        Raises UsageError as `decoder_config.join` does.
        """
        config = join([section.config for section in sections], part)
        tensors = {name: tensor for section in sections for name, tensor in section.tensors.items()}
        return cls(config, tensors, tuple(block for section in sections for block in section.blocks))

    def write(self, path: Path) -> None:
        """Write weights that are in one block."""
        [block] = self.blocks
        write_atomically(path, memoryview(block))

    @classmethod
    def read(cls, paths: Sequence[Path], part: LayerRange | None = None) -> Self:
        """Read files of `write` that make up `part`, in the order of their layers. `part` of one file is known.

        Raises OSError if a file cannot be read, ValueError if a file is damaged. The checksum of a file covers its
        description. The weights are not checked, as in other model files.
        """
        files = [Description.read(path) for path in paths]
        starts = list(itertools.accumulate((file.num_bytes for file in files), initial=0))
        layout = {
            name: (dtype, shape, start + at)
            for file, start in zip(files, starts, strict=False)
            for name, (dtype, shape, at) in file.layout.items()
        }
        config = join([file.config for file in files], part or files[0].config.part)
        packed = cls._allocate(config, layout, starts[-1])
        for path, (start, end) in zip(paths, itertools.pairwise(starts), strict=True):
            with path.open("rb") as file, memoryview(packed.blocks[0])[start:end] as to:
                if file.readinto(to) != end - start:
                    raise ValueError(f"{path} is damaged")
        return packed

    @classmethod
    def _allocate(cls, config: DecoderConfig, layout: "Layout", end: int) -> Self:
        """Allocate a block for tensors of `end` bytes. The description of the content is at the end of the block."""
        text = json.dumps({"config": dataclasses.asdict(config), "tensors": layout}).encode()
        memory = _memory(end + len(text) + _TRAILER.size)
        memory[end:] = text + _TRAILER.pack(len(memory), len(text), zlib.crc32(text))
        return cls(config, _views(memory, layout), (memory,))

    def parts(self, name: str) -> dict[str, npt.NDArray[Any]]:
        """Return the arrays of the matrix `name`, by kind; empty if the model has no such matrix."""
        kinds = ("values", "scales", "minimums", "bias")
        return {kind: self.tensors[f"{name}.{kind}"] for kind in kinds if f"{name}.{kind}" in self.tensors}


def _memory(num_bytes: int) -> mmap.mmap:
    """Allocate memory in huge pages if the operating system has huge pages.

    A step reads all weights, and reads small pages at half the speed. Huge pages require a private mapping.
    """
    memory = mmap.mmap(-1, num_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):  # a Linux kernel without huge pages
            memory.madvise(mmap.MADV_HUGEPAGE)
    return memory


def _views(memory: mmap.mmap, layout: Layout) -> dict[str, npt.NDArray[Any]]:
    return {
        name: np.frombuffer(memory, dtype, math.prod(shape), at).reshape(shape)
        for name, (dtype, shape, at) in layout.items()
    }
