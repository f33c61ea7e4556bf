"""A model's weights as the kernels read them, in one piece of memory, or in a file that is one read away from it."""

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
from aici_engine.native import from_transformers
from aici_engine.native.bindings import Format
from aici_engine.native.from_transformers import DecoderConfig

_ALIGNED: Final = 64
_TRAILER: Final = struct.Struct("<QQI")
"""At the end of a file: its length, that of the description before this, and the description's CRC-32."""


@dataclass(frozen=True, slots=True)
class PackedWeights:
    """`tensors` by name, as `from_transformers.extract` gives them: views of `memory`."""

    config: DecoderConfig
    tensors: Mapping[str, torch.Tensor]
    memory: mmap.mmap

    @classmethod
    def of(cls, model: HuggingFaceModel, weights: Format) -> Self:
        """Of a model that has no `unsupported_reason`."""
        return cls._lay_out(*from_transformers.extract(model, weights))

    @classmethod
    def _lay_out(cls, config: DecoderConfig, tensors: dict[str, torch.Tensor]) -> Self:
        """Takes `tensors` out one by one: weights are never there twice."""
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
        """OSError if it is not there, ValueError if it is not what `write` wrote. The weights themselves are believed,
        as those of any model's file are."""
        with path.open("rb") as file:
            memory = _memory(max(path.stat().st_size, _TRAILER.size))
            file.readinto(memory)
        size, length, checksum = _TRAILER.unpack(memory[-_TRAILER.size :])
        text = memory[len(memory) - _TRAILER.size - length : -_TRAILER.size]
        if size != len(memory) or checksum != zlib.crc32(text):
            raise ValueError(f"{path} is damaged")
        description = json.loads(text)
        config = description["config"] | {"weight_format": Format(description["config"]["weight_format"])}
        return cls(DecoderConfig(**config), _views(memory, description["tensors"]), memory)

    def parts(self, name: str) -> dict[str, torch.Tensor]:
        """Of a matrix."""
        kinds = ("values", "scales", "minimums", "bias")
        return {kind: self.tensors[f"{name}.{kind}"] for kind in kinds if f"{name}.{kind}" in self.tensors}


def _memory(num_bytes: int) -> mmap.mmap:
    """In huge pages where the kernel has them, for which it must be private: a step reads all of it, and reads small
    pages at half the speed."""
    memory = mmap.mmap(-1, num_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):  # a kernel that was built without them
            memory.madvise(mmap.MADV_HUGEPAGE)
    return memory


def _views(memory: mmap.mmap, layout: Mapping[str, tuple[str, list[int], int]]) -> dict[str, torch.Tensor]:
    views = {}
    for name, (dtype, shape, at) in layout.items():
        kind: torch.dtype = getattr(torch, dtype)
        count = torch.Size(shape).numel()
        views[name] = torch.frombuffer(memory, dtype=kind, count=count, offset=at).view(shape)
    return views
