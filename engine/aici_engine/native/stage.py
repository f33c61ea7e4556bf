"""The C decoder as a `StageModel`."""

import ctypes
import itertools
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from aici_engine.arrays import BF16_BITS, address_of, reserve
from aici_engine.cache.storage import KVStorage, LayerShape
from aici_engine.config import KVCacheDtype
from aici_engine.model.stage_model import StageModel
from aici_engine.native.bindings import CBatch, CDecoder, CLayer, CMatrix, CStorage, Format
from aici_engine.native.matrix_layout import matrix
from aici_engine.native.packed_weights import PackedWeights
from aici_engine.native.thread_pool import ThreadPool
from aici_engine.pooling import FinalStates
from aici_engine.step_input import Chunk

_NORMS: Final = ("before_attention", "after_attention", "before_mlp", "after_mlp", "query_norm", "key_norm")
_SAME_NAMES: Final = (
    *("hidden_size", "intermediate_size", "num_heads", "num_kv_heads", "head_dim", "rotary_dim"),
    *("joint_qk_norms", "layer_norm", "gated_mlp"),
    *("norm_eps", "embedding_scale", "query_scale", "activation_linear", "activation_cubic"),
    *("attention_softcap", "logit_softcap"),
)
"""Fields with the same name and meaning in DecoderConfig and CDecoder."""


_NUMBERS: Final[Mapping[Format, np.dtype[Any]]] = {
    Format.F32: np.dtype(np.float32),
    Format.BF16: BF16_BITS,
    Format.INT8: np.dtype(np.uint8),
}
"""The number types of keys and values."""
_LONGEST: Final = (1 << 31) - 1
"""The largest window of the kernels, longer than any context."""
_SCALE_BYTES: Final = 4
"""Of the scale of a key or a value in int8: an f32, in the same row."""


class NativeStage(StageModel):
    """A range of layers whose whole step runs in C, on the CPU.

    Invariant: a row of logits depends, to the last bit, only on the tokens of its sequence. Other sequences of the
    batch, the split into chunks and into stages, the number of threads and the CPU level have no effect.

    With f32 weights, all numbers are f32. Otherwise attention multiplies bf16 numbers; sums below 2^-126 may be 0 at
    one level and not at another. Inputs of matrices are bf16, or for integer weights bytes in groups of 32 with a
    scale. States between layers are f32 in all formats. With keys and values in int8, attention multiplies bytes:
    queries and attention weights are rounded as keys and values are.
    """

    states_dtype = np.dtype(np.float32)
    device = "cpu"

    def __init__(self, packed: PackedWeights, pool: ThreadPool, kv_cache_dtype: KVCacheDtype = "auto") -> None:
        config = packed.config
        self.part = config.part
        self.hidden_size = config.hidden_size
        self.vocab_size = config.vocab_size
        self._cache_format = _cache_format(config.weight_format, kv_cache_dtype)
        self.dtype = _NUMBERS[self._cache_format]
        self._scale_bytes = _SCALE_BYTES if self._cache_format is Format.INT8 else 0
        self.layers = [LayerShape(config.num_kv_heads, config.head_dim, config.head_dim)] * len(config.windows)
        self._packed = packed
        self._c = _structure(packed)
        self._storages: weakref.WeakKeyDictionary[KVStorage, CStorage] = weakref.WeakKeyDictionary()
        self._result: npt.NDArray[np.float32] = np.empty((0, 0), np.float32)
        self._pool = pool

    @property
    def pool(self) -> ThreadPool:
        """The threads that run the steps."""
        return self._pool

    @property
    def weight_format(self) -> Format:
        """The format of the layers' weights."""
        return self._packed.config.weight_format

    @property
    def head_format(self) -> Format:
        return self._packed.config.embedding_format

    @property
    def weight_bytes(self) -> int:
        """Bytes of the weights. A step reads all of them, except an untied embedding."""
        return self._packed.num_bytes

    @property
    def token_bytes(self) -> int:
        scales = sum(2 * layer.num_kv_heads * self._scale_bytes for layer in self.layers)
        return sum(layer.num_elements for layer in self.layers) * self.dtype.itemsize + scales

    def make_storage(self, *, num_pages: int, page_size: int) -> KVStorage:
        """Allocate the KV cache. Pages are in the usual order; the layout inside a page is private to the kernels."""
        rows = num_pages * page_size
        scale = self._scale_bytes
        keys = [reserve((rows, layer.num_kv_heads, layer.key_dim + scale), self.dtype) for layer in self.layers]
        values = [reserve((rows, layer.num_kv_heads, layer.value_dim + scale), self.dtype) for layer in self.layers]
        storage = KVStorage(keys, values, page_size=page_size)
        pointers = ctypes.c_void_p * len(self.layers)
        self._storages[storage] = CStorage(
            pointers(*map(address_of, keys)),
            pointers(*map(address_of, values)),
            self._cache_format,
            page_size,
        )
        return storage

    def run(
        self,
        storage: KVStorage,
        chunks: Sequence[Chunk],
        states: npt.NDArray[Any] | None,
        final_states: FinalStates | None = None,
    ) -> npt.NDArray[np.float32]:
        """See StageModel and Model. `states`, `final_states`: f32, contiguous, at any address."""
        part = self.part
        first = _starts(len(chunk.tokens) for chunk in chunks)
        page_at = _starts(len(chunk.pages) for chunk in chunks)
        ids = itertools.chain.from_iterable(chunk.tokens for chunk in chunks) if part.embedding else ()
        tokens = np.fromiter(ids, np.int32, first[-1] if part.embedding else 0)
        pages = np.fromiter(itertools.chain.from_iterable(chunk.pages for chunk in chunks), np.int32, page_at[-1])
        start = np.fromiter((chunk.start for chunk in chunks), np.int32, len(chunks))
        rows, num_tokens = _last_rows(first[1:], (chunk.num_logits for chunk in chunks)), int(first[-1])
        state_rows = _last_rows(first[1:], (chunk.num_states for chunk in chunks))
        if states is not None and not part.num_layers:  # The head alone: `states` has only the rows with logits.
            num_tokens, chunks, rows = len(states), (), np.arange(len(states), dtype=np.int32)
        arrays = (tokens, first, start, page_at, pages, rows)
        batch = CBatch(num_tokens, len(chunks), len(rows), *(array.ctypes.data for array in arrays))
        if final_states is not None:
            batch.num_states = len(state_rows)
            batch.state_rows, batch.final_states = state_rows.ctypes.data, final_states.ctypes.data
        result = self._result_for(len(rows) if part.head else num_tokens)
        library = self._pool.library
        library.aici_decoder_stage(
            self._pool.pointer,
            self._c,
            self._storages[storage],
            batch,
            self._pool.scratch(library.aici_decoder_memory(self._c, num_tokens)),
            None if states is None else address_of(states),
            None if part.head else address_of(result),
            address_of(result) if part.head else None,
        )
        return result[:, : self.vocab_size] if part.head else result

    def _result_for(self, num_rows: int) -> npt.NDArray[np.float32]:
        """Reuse memory between steps: fresh memory would cost more than sampling."""
        if len(self._result) < num_rows:
            self._result = np.empty((num_rows, self._c.head.rows if self.part.head else self.hidden_size), np.float32)
        return self._result[:num_rows]


def _cache_format(weights: Format, wanted: KVCacheDtype) -> Format:
    if wanted == "int8":
        return Format.INT8
    return Format.F32 if weights is Format.F32 else Format.BF16


def _structure(packed: PackedWeights) -> CDecoder:
    """Build the C structure. Its pointers refer to `packed`, which must outlive the structure."""
    config, tensors = packed.config, packed.tensors

    def vector(name: str) -> int | None:
        return address_of(tensors[name]) if name in tensors else None

    def whole(name: str, form: Format) -> CMatrix:
        parts = packed.parts(name)
        return matrix(parts, form) if parts else CMatrix()

    # Layers with equal rotation share the angles that a step computes.
    ropes: dict[tuple[tuple[float, ...], float], int] = {}
    of_layers = [
        ropes.setdefault((tuple(tensors[f"layers.{i}.inv_freqs"].tolist()), scale), len(ropes))
        for i, scale in enumerate(config.rope_scales, config.part.first)
    ]
    inv_freqs = [number for numbers, _ in ropes for number in numbers]
    layers = [
        CLayer(
            **{name: vector(f"layers.{i}.{name}") for name in _NORMS},
            **{name: whole(f"layers.{i}.{name}", config.weight_format) for name in ("qkv", "out", "gate_up", "down")},
            window=min(window, _LONGEST),
            rope=rope,
        )
        for i, (window, rope) in enumerate(zip(config.windows, of_layers, strict=True), config.part.first)
    ]
    return CDecoder(
        num_layers=len(layers),
        **{name: getattr(config, name) for name in _SAME_NAMES},
        num_ropes=len(ropes),
        inv_freqs=(ctypes.c_float * len(inv_freqs))(*inv_freqs),
        rope_scales=(ctypes.c_float * len(ropes))(*(scale for _, scale in ropes)),
        norm=vector("norm"),
        embedding=whole("embedding" if packed.parts("embedding") else "head", config.embedding_format),
        positions=whole("positions", Format.F32),
        head=whole("head", config.embedding_format),
        layers=(CLayer * len(layers))(*layers),
    )


def _starts(lens: Iterator[int]) -> "np.ndarray[tuple[int], np.dtype[np.int32]]":
    """Return the start of every item in a concatenation, followed by the total length."""
    return np.array(list(itertools.accumulate(lens, initial=0)), np.int32)


def _last_rows(ends: Iterable[int], counts: Iterable[int]) -> "np.ndarray[tuple[int], np.dtype[np.int32]]":
    """Return the last rows of every chunk, as many as `counts` says. `ends`: where the chunks end in the batch."""
    rows = (row for end, count in zip(ends, counts, strict=True) for row in range(end - count, end))
    return np.fromiter(rows, np.int32)
