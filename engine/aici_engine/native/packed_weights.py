"""The weights of a model in the layout of the kernels, in one block of memory. A file has the same content."""

import contextlib
import dataclasses
import json
import mmap
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

import torch

from aici_base.cache_files import write_atomically
from aici_engine.model.huggingface import HuggingFaceModel
from aici_engine.model.stage_model import LayerRange
from aici_engine.native import from_transformers
from aici_engine.native.bindings import Format
from aici_engine.native.from_transformers import DecoderConfig

_ALIGNED: Final = 64
_TRAILER: Final = struct.Struct("<QQI")
"""The end of a file: length of the file, length of the JSON description before the trailer, CRC-32 of the description.
"""


@dataclass(frozen=True, slots=True)
class PackedWeights:
    """`tensors`: views of `memory`, with the names of `from_transformers.extract`."""

    config: DecoderConfig
    tensors: Mapping[str, torch.Tensor]
    memory: mmap.mmap

    @classmethod
    def of(cls, model: HuggingFaceModel, weights: Format) -> Self:
        """Pack a model without `unsupported_reason`. `weights`: the format of the layers."""
        return cls._lay_out(*from_transformers.extract(model, weights))

    @classmethod
    def _lay_out(cls, config: DecoderConfig, tensors: dict[str, torch.Tensor]) -> Self:
        """Move `tensors` into one block. The dictionary is emptied on the way, so that no weight is in memory twice."""
        layout, end = {}, 0
        for name, tensor in tensors.items():
            layout[name] = (str(tensor.dtype).removeprefix("torch."), list(tensor.shape), end)
            end += -(-tensor.nbytes // _ALIGNED) * _ALIGNED
        text = json.dumps({"config": dataclasses.asdict(config), "tensors": layout}).encode()
        memory = _memory(end + len(text) + _TRAILER.size)
        memory[end:] = text + _TRAILER.pack(len(memory), len(text), zlib.crc32(text))
        views = _views(memory, layout)
        for name, view in views.items():
            view.copy_(tensors.pop(name).detach())
        return cls(config, views, memory)

    def write(self, path: Path) -> None:
        write_atomically(path, memoryview(self.memory))

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a file of `write`. Raises OSError if the file cannot be read, ValueError if the file is damaged.

        The checksum covers the description. The weights are not checked, as in other model files.
        """
        with path.open("rb") as file:
            memory = _memory(max(path.stat().st_size, _TRAILER.size))
            file.readinto(memory)
        size, length, checksum = _TRAILER.unpack(memory[-_TRAILER.size :])
        text = memory[len(memory) - _TRAILER.size - length : -_TRAILER.size]
        if size != len(memory) or checksum != zlib.crc32(text):
            raise ValueError(f"{path} is damaged")
        description = json.loads(text)
        config = description["config"]
        config |= {"weight_format": Format(config["weight_format"]), "part": LayerRange(**config["part"])}
        return cls(DecoderConfig(**config), _views(memory, description["tensors"]), memory)

    def parts(self, name: str) -> dict[str, torch.Tensor]:
        """Return the tensors of the matrix `name`, by kind; empty if the model has no such matrix."""
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


def _views(memory: mmap.mmap, layout: Mapping[str, tuple[str, list[int], int]]) -> dict[str, torch.Tensor]:
    views = {}
    for name, (dtype, shape, at) in layout.items():
        kind: torch.dtype = getattr(torch, dtype)
        count = torch.Size(shape).numel()
        views[name] = torch.frombuffer(memory, dtype=kind, count=count, offset=at).view(shape)
    return views
