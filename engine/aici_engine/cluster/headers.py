"""The sizes of a model's parts, from the headers of its files. No tensor is read, and torch is not imported."""

import json
import math
import re
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

from aici_base.errors import UsageError
from aici_base.tokenizer.gguf import INCOMPLETE, read_header
from aici_engine.config import Dtype, KVCacheDtype
from aici_engine.model.stage_range import LayerRange
from aici_engine.model_check import read_model_config
from aici_engine.model_files import read_settings

WEIGHT_BYTES: Final[Mapping[Dtype, float]] = {"float32": 4.0, "bfloat16": 2.0, "int8": 1.0625, "int4": 0.625}
"""Bytes per weight of a matrix. int8 and int4 include the scale (and the minimum, for int4) of a group of 32."""

_LAYER: Final = re.compile(r"(?:^|\.)(?:layers|h|blocks|block|blk)\.(\d+)\.")
_HEAD: Final = re.compile(r"(?:^|\.)(?:lm_head|embed_out|output)\.(?:weight|bias)$")
_EMBEDDING: Final = re.compile(
    r"embed_tokens\.|(?:^|\.)wte\.|word_embeddings?\.|(?:^|\.)embed_in\.|token_embd\.|tok_embeddings"
)
_POSITIONS: Final = re.compile(r"(?:^|\.)wpe\.|embed_positions\.|position_embd\.")
_NO_WEIGHTS: Final = re.compile(
    r"vision|visual|audio|multi_modal|\.attn\.(?:masked_)?bias$|rotary_emb|rope_freqs|rope_factors"
)
"""Tensors that the engine does not load: of other modalities, and buffers in some checkpoints."""
_MAX_HEADER: Final = 100 << 20
_GGUF_DTYPES: Final[Mapping[int, Dtype]] = {2: "int4", 3: "int4", 8: "int8", 30: "bfloat16"}
"""ggml's number of Q4_0, Q4_1, Q8_0 and BF16: the formats that hold the weights of such tensors without loss."""
_BY_SIZE: Final[Sequence[Dtype]] = ("int4", "int8", "bfloat16", "float32")


class TensorShape(NamedTuple):
    """`dtype`: the format that holds the tensor's weights without loss."""

    shape: tuple[int, ...]
    dtype: Dtype


@dataclass(frozen=True, slots=True)
class PartSize:
    """A layer, the embedding, or the head with the final norm. `matrices`: weights of matrices. `vectors`: numbers of
    norms, biases and position embeddings, which stay f32. `names`: the tensors in the model's files."""

    matrices: int = 0
    vectors: int = 0
    names: tuple[str, ...] = ()

    def num_bytes(self, dtype: Dtype) -> int:
        return round(self.matrices * WEIGHT_BYTES[dtype]) + 4 * self.vectors


@dataclass(frozen=True, kw_only=True)
class ModelSizes:
    """The sizes of a decoder's parts, as the engine holds them in memory.

    `dtype`: the meaning of `auto` as far as headers tell. A converted GGUF model is stored as f32, and `auto` may find
    a smaller format without loss in the weights. `positions`: the embedding of positions, which most models lack.
    `head`: includes the final norm; without matrices if `tied`: the embedding serves as head too. `kv_numbers`: numbers
    of the KV cache per token, for every layer. `head_dim`: numbers of a key. `context`, in tokens: the limit of the
    model.
    """

    name: str
    dtype: Dtype
    layers: tuple[PartSize, ...]
    embedding: PartSize
    positions: PartSize
    head: PartSize
    tied: bool
    kv_numbers: tuple[int, ...]
    head_dim: int
    hidden_size: int
    intermediate_size: int
    vocab_size: int
    context: int

    @property
    def num_layers(self) -> int:
        return len(self.layers)

    @property
    def whole(self) -> LayerRange:
        return LayerRange(0, self.num_layers, embedding=True, head=True)

    def weight_bytes(self, part: LayerRange, dtype: Dtype) -> int:
        """Return the bytes of the weights of `part`. A tied embedding is there once, also beside the head."""
        return self._num_bytes(self._ends(part), part, dtype)

    def read_bytes(self, part: LayerRange, dtype: Dtype) -> int:
        """Return the weight bytes of a decoding step: without the embedding, of which a step reads single rows."""
        return self._num_bytes(self._ends(LayerRange(0, 0, embedding=False, head=part.head)), part, dtype)

    def flops(self, part: LayerRange) -> int:
        """Return the floating-point operations per token in matrices."""
        head = (self.embedding if self.tied else self.head).matrices if part.head else 0
        return 2 * (head + sum(layer.matrices for layer in self.layers[part.first : part.last]))

    def token_bytes(self, part: LayerRange, dtype: Dtype, kv_cache_dtype: KVCacheDtype = "auto") -> int:
        """Return the bytes of the KV cache per token. auto: f32 with f32 weights, else bf16. int8: a byte for each
        number, and an f32 scale for each key and each value of a head."""
        numbers = sum(self.kv_numbers[part.first : part.last])
        if kv_cache_dtype == "int8":
            return numbers + 4 * numbers // max(1, self.head_dim)
        return numbers * (4 if dtype == "float32" else 2)

    def work_bytes(self, part: LayerRange, *, max_batch_tokens: int, max_num_seqs: int) -> int:
        """Return the bytes of scratch memory: activations of `max_batch_tokens` tokens, and logits with the head."""
        kv = max(self.kv_numbers, default=0)
        # The layout is that of aici_decoder_memory in native/src/decoder.c; four more states lie in sockets.
        a_token = 4 * (8 * self.hidden_size + kv + 2 * self.intermediate_size) + 6 * (
            self.hidden_size + self.intermediate_size
        )
        logits = 2 * 4 * max_num_seqs * self.vocab_size if part.head else 0
        return max_batch_tokens * a_token + logits

    def tensors(self, part: LayerRange) -> list[str]:
        """Return the names of the tensors that `part` needs, sorted."""
        sizes = [*self._ends(part), *self.layers[part.first : part.last]]
        return sorted(name for size in sizes for name in size.names)

    def _ends(self, part: LayerRange) -> list[PartSize]:
        """Return the sizes of `part` beside the layers."""
        ends = [self.positions] if part.embedding else []
        ends += [self.embedding] if part.embedding or (part.head and self.tied) else []
        return ends + ([self.head] if part.head else [])

    def _num_bytes(self, ends: Iterable[PartSize], part: LayerRange, dtype: Dtype) -> int:
        end_bytes = sum(end.num_bytes("int8" if dtype == "int4" else dtype) for end in ends)
        return end_bytes + sum(layer.num_bytes(dtype) for layer in self.layers[part.first : part.last])

    @classmethod
    def of(cls, path: Path) -> Self:
        """Read the headers of a model folder, or of a GGUF file.

        Raises UsageError if the files are no decoder's, or are damaged.
        """
        return cls._of_gguf(path) if path.is_file() else cls._of_folder(path)

    @classmethod
    def _of_folder(cls, folder: Path) -> Self:
        config = read_model_config(folder)
        tensors: dict[str, TensorShape] = {}
        for file in _files(folder):
            tensors |= _safetensors_header(file)
        name = next(iter(config.get("architectures") or ()), "") or str(config.get("model_type", ""))
        stored = config.get("dtype", config.get("torch_dtype"))
        tied = bool(config.get("tie_word_embeddings", False))
        text = config.get("text_config") or config
        dtype: Dtype = "bfloat16" if (stored or text.get("dtype")) == "bfloat16" else "float32"
        return cls._from(str(folder), name, tensors, _Settings(text), dtype=dtype, tied=tied)

    @classmethod
    def _of_gguf(cls, path: Path) -> Self:
        metadata, found = read_header(path)
        arch = str(metadata.get("general.architecture", ""))
        own = {key.removeprefix(f"{arch}."): value for key, value in metadata.items()}
        tensors = {t.name: TensorShape(t.shape[::-1], _GGUF_DTYPES.get(t.kind, "float32")) for t in found}
        in_layers = [t.dtype for name, t in tensors.items() if len(t.shape) > 1 and _LAYER.search(name)]
        dtype: Dtype = max(in_layers, key=_BY_SIZE.index, default=_BY_SIZE[-1])
        return cls._from(str(path), arch, tensors, _Settings(own), dtype=dtype, tied=False)

    @classmethod
    def _from(
        cls,
        path: str,
        name: str,
        tensors: Mapping[str, TensorShape],
        settings: "_Settings",
        *,
        dtype: Dtype,
        tied: bool,
    ) -> Self:
        layers: dict[int, list[str]] = {}
        ends: dict[str, list[str]] = {"embedding": [], "positions": [], "head": []}
        for tensor in tensors:
            if _NO_WEIGHTS.search(tensor):
                continue
            if found := _LAYER.search(tensor):
                layers.setdefault(int(found[1]), []).append(tensor)
            else:
                is_embedding, is_positions = _EMBEDDING.search(tensor), _POSITIONS.search(tensor)
                ends["positions" if is_positions else "embedding" if is_embedding else "head"].append(tensor)
        num_layers = settings.number("num_hidden_layers", "n_layer", "block_count") or len(layers)
        if not layers or sorted(layers) != list(range(num_layers)):
            raise UsageError(
                f"{path} has {len(layers)} of {num_layers} layers"
                if layers
                else f"{path} holds no layers of a decoder",
                hint=INCOMPLETE if layers else "name a decoder: a model folder with *.safetensors, or a .gguf file",
            )
        has_head = any(_HEAD.search(tensor) for tensor in ends["head"])
        if tied:  # a copy of the embedding is ignored
            ends["head"] = [tensor for tensor in ends["head"] if not _HEAD.search(tensor)]
        return cls(
            name=name,
            dtype=dtype,
            layers=tuple(_part(layers[i], tensors) for i in range(num_layers)),
            **{end: _part(names, tensors) for end, names in ends.items()},
            tied=tied or not has_head,
            kv_numbers=settings.kv_numbers(num_layers),
            head_dim=settings.head_dim,
            hidden_size=settings.number("hidden_size", "n_embd", "embedding_length"),
            intermediate_size=settings.intermediate_size,
            vocab_size=max((tensors[name].shape[0] for name in ends["embedding"]), default=0),
            context=settings.number("max_position_embeddings", "n_positions", "context_length") or 2048,
        )


@dataclass(frozen=True)
class _Settings:
    """config.json, or the metadata of a GGUF file: the same settings under several names."""

    values: Mapping[str, Any]

    def number(self, *names: str) -> int:
        """Return the first setting present, or 0."""
        return next((int(self.values[name]) for name in names if isinstance(self.values.get(name), int)), 0)

    @property
    def heads(self) -> int:
        return self.number("num_attention_heads", "n_head", "attention.head_count")

    @property
    def head_dim(self) -> int:
        hidden = self.number("hidden_size", "n_embd", "embedding_length")
        return self.number("head_dim", "attention.key_length") or hidden // max(1, self.heads)

    def kv_numbers(self, num_layers: int) -> tuple[int, ...]:
        """Return the numbers of keys and values per token, for every layer."""
        heads = self.heads
        numbers = self.head_dim + (self.number("attention.value_length") or self.head_dim)
        if self.number("kv_lora_rank"):  # latent attention: the cache holds the expanded keys and values
            keys = self.number("qk_nope_head_dim") + self.number("qk_rope_head_dim")
            return ((keys + self.number("v_head_dim")) * heads,) * num_layers
        per_layer = next((self.values[key] for key in _KV_HEADS if isinstance(self.values.get(key), list)), None)
        if per_layer is not None and len(per_layer) == num_layers:
            return tuple(int(count) * numbers for count in per_layer)
        return ((self.number(*_KV_HEADS) or heads) * numbers,) * num_layers

    @cached_property
    def intermediate_size(self) -> int:
        hidden = self.number("hidden_size", "n_embd", "embedding_length")
        return self.number("intermediate_size", "n_inner", "feed_forward_length", "ffn_dim") or 4 * hidden


_KV_HEADS: Final = ("num_key_value_heads", "num_kv_heads", "attention.head_count_kv")


def _part(names: Iterable[str], tensors: Mapping[str, TensorShape]) -> PartSize:
    sizes = {True: 0, False: 0}
    names = tuple(names)
    for name in names:
        shape = tensors[name].shape
        sizes[len(shape) > 1 and not _POSITIONS.search(name)] += math.prod(shape)
    return PartSize(sizes[True], sizes[False], names)


def _files(folder: Path) -> list[Path]:
    """Return the files with the weights: one file, else the files of the index, else all."""
    if (whole := folder / "model.safetensors").is_file():
        return [whole]
    places = read_settings(folder / "model.safetensors.index.json").get("weight_map")
    names = {str(name) for name in places.values()} if isinstance(places, dict) else set()
    return sorted(folder / Path(name).name for name in names) or sorted(folder.glob("*.safetensors"))


def _safetensors_header(path: Path) -> dict[str, TensorShape]:
    """Return the tensors of a file. The format: 8 bytes length, JSON, data. Raises UsageError for a damaged file."""
    try:
        with path.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            if length > min(_MAX_HEADER, path.stat().st_size):
                raise ValueError(f"a header of {length} bytes")
            header = json.loads(file.read(length))
        return {
            name: TensorShape(tuple(tensor["shape"]), "bfloat16" if tensor["dtype"] == "BF16" else "float32")
            for name, tensor in header.items()
            if name != "__metadata__"
        }
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error
    except (struct.error, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UsageError(f"{path} is damaged: {error}", hint=INCOMPLETE) from error
