"""Load the weights of a known family for the kernels, whole or a range of layers, straight from a model's files,
without torch."""

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt

from aici_base.errors import UsageError
from aici_engine.arrays import as_bf16, as_floats
from aici_engine.config import Dtype
from aici_engine.cpu_threads import default_threads
from aici_engine.model.stage_range import LayerRange
from aici_engine.model.tensor_source import DTYPES, FolderSource, TensorSource
from aici_engine.model_check import read_model_config
from aici_engine.model_files import read_settings
from aici_engine.native.bindings import Format
from aici_engine.native.decoder_config import FORMATS
from aici_engine.native.known_model import KnownModel, NotKnownError, known_model
from aici_engine.native.malloc import large_blocks_returned
from aici_engine.native.matrix_layout import LANES, ArrayKind, pack, shapes
from aici_engine.native.number_format import smallest_lossless, stored_dtype
from aici_engine.native.packed_weights import PackedWeights

_SLAB_BYTES: Final = 1 << 22
"""Bytes of an embedding, as stored, that are packed at a time."""
_FLOATS: Final = {"F64", "F32", "F16", "BF16"}
Shapes = Mapping[str, tuple[int, ...]]
_T = TypeVar("_T")


@large_blocks_returned()
def load_folder(folder: Path, dtype: Dtype) -> PackedWeights:
    """Read and pack the model in `folder`, a few tensors at a time.

    Raises NotKnownError if only transformers can load the model, UsageError if tensors are missing or files damaged.
    """
    # The settings first: the files of a model that is not known may be in any form.
    model = known_model(read_model_config(folder), read_settings(folder / "generation_config.json"))
    source = FolderSource(folder)
    weights = KnownWeights(source, model, dtype)
    weights.check(str(folder))
    if dtype == "auto":
        dtype = smallest_lossless(weights.matrices, stored_dtype(source.config))
    return weights.pack(FORMATS[dtype])


def known_weights(source: TensorSource, part: LayerRange | None = None, *, dtype: Dtype) -> "KnownWeights":
    """Return the weights of a model or of a range; no tensor is read yet. Raises as `load_folder` does."""
    model = known_model(source.config, source.generation_config)
    weights = KnownWeights(source, model, dtype, part)
    weights.check(model.config.name)
    return weights


class KnownWeights:
    """The tensors of a model, or of a range of its layers, by place in the decoder. No tensor is kept in memory."""

    def __init__(self, source: TensorSource, model: KnownModel, dtype: Dtype, part: LayerRange | None = None) -> None:
        self._source = source
        self._model = model if part is None else model.cut(part)
        # As transformers does: weights, norms and biases are rounded together.
        self._rounds = (stored_dtype(source.config) if dtype == "auto" else dtype) == "bfloat16"

    def check(self, model: str) -> None:
        """Raise NotKnownError for tensors in another form, UsageError if tensors are missing or have another shape."""
        tensors, wanted = self._source.tensors, self._shapes()
        if not any(name in tensors for name in wanted if name != "lm_head.weight"):  # many families have such a head
            raise NotKnownError("its tensors have other names")
        if self._model.config.tied_embeddings and "lm_head.weight" in tensors:
            raise NotKnownError("its files have a head beside the tied embedding")
        lost = sorted(name for name, shape in wanted.items() if name not in tensors or tensors[name].shape != shape)
        if lost:
            raise UsageError(
                f"{model} cannot be loaded as a model: {len(lost)} tensors are missing or have the wrong shape, "
                f"{lost[0]} among them",
                hint="the download may be incomplete, or config.json is another model's",
            )
        if kinds := {tensors[name].dtype for name in wanted} - _FLOATS:
            raise NotKnownError(f"its tensors are stored as {', '.join(sorted(kinds))}")

    @property
    def names(self) -> list[str]:
        """The names of the tensors, sorted."""
        return sorted(self._shapes())

    def matrices(self) -> Iterator[npt.NDArray[Any]]:
        """Yield the matrices of the layers, one at a time."""
        for name, shape in self._shapes().items():
            if name.startswith("model.layers.") and len(shape) == 2:
                yield self._read(name)

    def pack(self, form: Format) -> PackedWeights:
        """Pack every tensor into the memory where the tensor stays. The names are those of `from_transformers.extract`.

        Embedding and head are read and packed by a few rows at a time: in f32 they may be as large as all layers
        packed.
        """
        config = replace(self._model.config, weight_format=form)
        numbers, ends = range(config.part.first, config.part.last), self._ends()
        first = self._layer(numbers[0], form) if numbers else {}
        kinds: dict[str, ArrayKind] = {}
        if config.part.head:
            kinds["norm"] = np.dtype(np.float32), (config.hidden_size,)
        for i in numbers:
            kinds |= {f"layers.{i}.{name}": (array.dtype, array.shape) for name, array in first.items()}
        for place in ends:
            kinds |= _named(place, shapes(config.vocab_size, config.hidden_size, config.embedding_format))
        packed = PackedWeights.reserve(config, kinds)

        def put(number: int) -> None:
            for name, array in (first if number == numbers[0] else self._layer(number, form)).items():
                packed.tensors[f"layers.{number}.{name}"][...] = array

        if config.part.head:
            packed.tensors["norm"][...] = as_floats(self._read("model.norm.weight"))
        with ThreadPoolExecutor(default_threads(), "aici-pack") as threads:  # numpy releases the GIL
            for _ in threads.map(put, numbers):
                pass
        for place, name in ends.items():
            for at, rows in self._slabs(name):
                for kind, part in pack(rows, config.embedding_format).items():
                    packed.tensors[f"{place}.{kind}"][at // LANES : at // LANES + len(part)] = part
        return packed

    def _ends(self) -> dict[str, str]:
        """Return place → name of the matrices of embedding and head. Tied, both are one matrix: the head."""
        config = self._model.config
        part, embedding = config.part, "model.embed_tokens.weight"
        if config.tied_embeddings:
            return {"head": embedding} if part.embedding or part.head else {}
        ends = {"head": "lm_head.weight"} if part.head else {}
        return ends | ({"embedding": embedding} if part.embedding else {})

    def _slabs(self, name: str) -> Iterator[tuple[int, npt.NDArray[Any]]]:
        """Yield the rows of a matrix, a few at a time, with the number of the first."""
        dtype, (num_rows, columns) = self._source.tensors[name]
        row_bytes = columns * DTYPES[dtype].itemsize
        step = max(1, _SLAB_BYTES // row_bytes // LANES) * LANES
        for at in range(0, num_rows, step):
            content = self._source.read_bytes(name, at * row_bytes, step * row_bytes)
            rows = np.frombuffer(content, DTYPES[dtype]).reshape(-1, columns)
            yield at, as_bf16(rows) if self._rounds else rows

    def _layer(self, number: int, form: Format) -> dict[str, npt.NDArray[Any]]:
        model, prefix = self._model, f"model.layers.{number}."

        def read(name: str) -> npt.NDArray[Any]:
            return self._read(prefix + name)

        def joined(names: list[str]) -> npt.NDArray[Any]:
            return np.concatenate([read(name) for name in names])

        queries = [f"self_attn.{kind}_proj" for kind in "qkv"]
        gate_up = ["mlp.gate_proj", "mlp.up_proj"]
        found: dict[str, npt.NDArray[Any]] = {
            "inv_freqs": model.inv_freqs,
            "before_attention": as_floats(read("input_layernorm.weight")),
            "before_mlp": as_floats(read("post_attention_layernorm.weight")),
        }
        if model.qk_norms:
            found |= {f"{kind}_norm": as_floats(read(f"self_attn.{kind[0]}_norm.weight")) for kind in ("query", "key")}

        def matrix(place: str, names: list[str], has_bias: bool, paired: bool = False) -> None:
            weight = joined([f"{name}.weight" for name in names])
            bias = joined([f"{name}.bias" for name in names]) if has_bias else None
            if paired:
                weight, bias = _paired(weight), None if bias is None else _paired(bias)
            found.update(_named(place, pack(weight, form, bias)))

        matrix("qkv", queries, model.qkv_bias)
        matrix("out", ["self_attn.o_proj"], model.out_bias)
        matrix("gate_up", gate_up, model.mlp_bias, paired=True)
        matrix("down", ["mlp.down_proj"], model.mlp_bias)
        return found

    def _read(self, name: str) -> npt.NDArray[Any]:
        array = self._source.read(name)
        return as_bf16(array) if self._rounds else array

    def _shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the names and shapes of all tensors that the decoder needs."""
        model, config = self._model, self._model.config
        hidden, inner = config.hidden_size, config.intermediate_size
        queries, keys = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
        shapes: dict[str, tuple[int, ...]] = dict.fromkeys(self._ends().values(), (config.vocab_size, hidden))
        if config.part.head:
            shapes["model.norm.weight"] = (hidden,)
        linear = {
            "self_attn.q_proj": (queries, hidden, model.qkv_bias),
            "self_attn.k_proj": (keys, hidden, model.qkv_bias),
            "self_attn.v_proj": (keys, hidden, model.qkv_bias),
            "self_attn.o_proj": (hidden, queries, model.out_bias),
            "mlp.gate_proj": (inner, hidden, model.mlp_bias),
            "mlp.up_proj": (inner, hidden, model.mlp_bias),
            "mlp.down_proj": (hidden, inner, model.mlp_bias),
        }
        norms = {"input_layernorm": hidden, "post_attention_layernorm": hidden}
        if model.qk_norms:
            norms |= {"self_attn.q_norm": config.head_dim, "self_attn.k_norm": config.head_dim}
        for i in range(config.part.first, config.part.last):
            prefix = f"model.layers.{i}."
            for name, (rows, columns, has_bias) in linear.items():
                shapes[f"{prefix}{name}.weight"] = (rows, columns)
                if has_bias:
                    shapes[f"{prefix}{name}.bias"] = (rows,)
            shapes |= {f"{prefix}{name}.weight": (size,) for name, size in norms.items()}
        return shapes


def _named(name: str, parts: Mapping[str, _T]) -> dict[str, _T]:
    return {f"{name}.{kind}": part for kind, part in parts.items()}


def _paired(rows: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Interleave the rows: from all of gate, all of up, to 16 of gate, 16 of up, 16 of gate, and so on."""
    pairs = rows.reshape(2, -1, LANES, *rows.shape[1:])
    return np.ascontiguousarray(np.swapaxes(pairs, 0, 1)).reshape(rows.shape)
