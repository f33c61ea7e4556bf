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
from typing import Any, Final, Self

import torch

from aici_engine.native.bindings import Format
from aici_engine.native.weights import LANES, pack
from aici_runtime.cache import write_atomically
from aici_runtime.ids import TokenId

_ALIGNED: Final = 64
_TRAILER: Final = struct.Struct("<QQI")
"""At the end of a file: its length, that of the description before this, and the description's CRC-32."""


@dataclass(frozen=True, slots=True)
class Shape:
    """`width`: of a head. `windows`: of each layer's attention, 0 for none. `context`, `eos_tokens`: as in Model."""

    name: str
    weights: Format
    hidden: int
    inner: int
    query_heads: int
    key_heads: int
    width: int
    windows: list[int]
    epsilon: float
    rope_scale: float
    vocab_size: int
    context: int
    eos_tokens: list[TokenId]
    tied: bool

    @property
    def outer(self) -> Format:
        """Of the embedding and the head: half a byte is too coarse where each number stands for a whole token."""
        return Format.INT8 if self.weights is Format.INT4 else self.weights


@dataclass(frozen=True, slots=True)
class Packed:
    """`tensors` by name: norms and `frequencies` as they are, matrices by their parts (`layers.0.qkv.values`)."""

    shape: Shape
    tensors: Mapping[str, torch.Tensor]
    memory: mmap.mmap

    @classmethod
    def of(cls, module: Any, weights: Format, *, context: int, eos_tokens: frozenset[TokenId]) -> Self:
        """From a model of transformers that has no `obstacle`."""
        config, model = module.config, module.model
        head, embedding = module.lm_head.weight, model.embed_tokens.weight
        shape = Shape(
            name=type(module).__name__,
            weights=weights,
            hidden=config.hidden_size,
            inner=config.intermediate_size,
            query_heads=config.num_attention_heads,
            key_heads=config.num_key_value_heads,
            width=head_width(config),
            windows=[_window(layer.self_attn) for layer in model.layers],
            epsilon=config.rms_norm_eps,
            rope_scale=model.rotary_emb.attention_scaling,
            vocab_size=config.vocab_size,
            context=context,
            eos_tokens=sorted(eos_tokens),
            tied=embedding is head,
        )
        tensors = {"frequencies": model.rotary_emb.inv_freq.float(), "norm": model.norm.weight.float()}
        for i, layer in enumerate(model.layers):
            tensors |= {f"layers.{i}.{name}": tensor for name, tensor in _layer(layer, weights).items()}
        tensors |= _named("head", pack(head, shape.outer))
        if not shape.tied:
            tensors |= _named("embedding", pack(embedding, shape.outer))
        return cls._lay_out(shape, tensors)

    @classmethod
    def _lay_out(cls, shape: Shape, tensors: Mapping[str, torch.Tensor]) -> Self:
        places, end = {}, 0
        for name, tensor in tensors.items():
            places[name] = (str(tensor.dtype).removeprefix("torch."), list(tensor.shape), end)
            end += -(-tensor.nbytes // _ALIGNED) * _ALIGNED
        text = json.dumps({"shape": dataclasses.asdict(shape), "places": places}).encode()
        memory = _memory(end + len(text) + _TRAILER.size)
        memory[end:] = text + _TRAILER.pack(len(memory), len(text), zlib.crc32(text))
        views = _views(memory, places)
        for name, tensor in tensors.items():
            views[name].copy_(tensor.detach())
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


def head_width(config: Any) -> int:
    return int(getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads)


def _layer(layer: Any, weights: Format) -> dict[str, torch.Tensor]:
    attention, mlp = layer.self_attn, layer.mlp
    inputs = (attention.q_proj, attention.k_proj, attention.v_proj)
    bias = None if inputs[0].bias is None else torch.cat([part.bias for part in inputs])
    gate, up = (part.weight.unflatten(0, (-1, LANES)) for part in (mlp.gate_proj, mlp.up_proj))
    norms = {"input_norm": layer.input_layernorm, "post_norm": layer.post_attention_layernorm}
    if hasattr(attention, "q_norm"):
        norms |= {"query_norm": attention.q_norm, "key_norm": attention.k_norm}
    return {
        **{name: norm.weight.float() for name, norm in norms.items()},
        **_named("qkv", pack(torch.cat([part.weight for part in inputs]), weights, bias)),
        **_named("out", pack(attention.o_proj.weight, weights)),
        **_named("gate_up", pack(torch.stack([gate, up], 1).flatten(0, 2), weights)),
        **_named("down", pack(mlp.down_proj.weight, weights)),
    }


def _window(attention: Any) -> int:
    """Mistral's layers ask their configuration anew each time."""
    holder = attention if hasattr(attention, "sliding_window") else attention.config
    return getattr(holder, "sliding_window", None) or 0


def _named(name: str, parts: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {f"{name}.{kind}": part for kind, part in parts.items()}


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
