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
from aici_engine.model.runner import HuggingFaceModel
from aici_engine.native import decoder
from aici_engine.native.bindings import Format
from aici_engine.native.decoder import Shape

_ALIGNED: Final = 64
_TRAILER: Final = struct.Struct("<QQI")
"""At the end of a file: its length, that of the description before this, and the description's CRC-32."""


@dataclass(frozen=True, slots=True)
class Packed:
    """`tensors` by name, as `decoder.take` gives them: views of `memory`."""

    shape: Shape
    tensors: Mapping[str, torch.Tensor]
    memory: mmap.mmap

    @classmethod
    def of(cls, model: HuggingFaceModel, weights: Format) -> Self:
        """Of a model that has no `obstacle`."""
        return cls._lay_out(*decoder.take(model, weights))

    @classmethod
    def _lay_out(cls, shape: Shape, tensors: dict[str, torch.Tensor]) -> Self:
        """Takes `tensors` out one by one: weights are never there twice."""
        places, end = {}, 0
        for name, tensor in tensors.items():
            places[name] = (str(tensor.dtype).removeprefix("torch."), list(tensor.shape), end)
            end += -(-tensor.nbytes // _ALIGNED) * _ALIGNED
        text = json.dumps({"shape": dataclasses.asdict(shape), "places": places}).encode()
        memory = _memory(end + len(text) + _TRAILER.size)
        memory[end:] = text + _TRAILER.pack(len(memory), len(text), zlib.crc32(text))
        views = _views(memory, places)
        for name, view in views.items():
            view.copy_(tensors.pop(name).detach())
        return cls(shape, views, memory)

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
        told = json.loads(text)
        shape = Shape(**{**told["shape"], "weights": Format(told["shape"]["weights"])})
        return cls(shape, _views(memory, told["places"]), memory)

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


def _views(memory: mmap.mmap, places: Mapping[str, tuple[str, list[int], int]]) -> dict[str, torch.Tensor]:
    views = {}
    for name, (dtype, shape, at) in places.items():
        kind: torch.dtype = getattr(torch, dtype)
        count = torch.Size(shape).numel()
        views[name] = torch.frombuffer(memory, dtype=kind, count=count, offset=at).view(shape)
    return views
