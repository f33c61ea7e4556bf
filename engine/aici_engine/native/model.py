"""A decoder of the Llama family, run by the kernels."""

import ctypes
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import numpy as np
import torch

from aici_engine.cache.storage import LayerShape, Storage
from aici_engine.model.batch import Chunk
from aici_engine.native.bindings import CBatch, CLayer, CLlama, CMatrix, CStorage, Format
from aici_engine.native.weights import LANES, Matrix, pack
from aici_runtime.ids import TokenId

FAMILIES: Final = frozenset({"LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM"})
_ROTATIONS: Final = frozenset({"default", "linear", "llama3"})
"""Whose frequencies do not depend on the sequence."""
_MAX_WIDTH: Final = 256
FORMATS: Final = {"float32": Format.F32, "bfloat16": Format.BF16, "int8": Format.INT8, "int4": Format.INT4}
_CACHES: Final = {Format.F32: torch.float32, Format.BF16: torch.bfloat16}
_CACHE_FORMATS: Final = {torch.float32: Format.F32, torch.bfloat16: Format.BF16, torch.float16: Format.F16}


def obstacle(module: Any, *, page_size: int) -> str | None:
    """Why the kernels cannot run this transformers model: None if they can."""
    name = type(module).__name__
    if name not in FAMILIES:
        return f"there are no kernels for {name}"
    config, layer = module.config, module.model.layers[0]
    width = _width(config)
    rotation = (getattr(config, "rope_parameters", None) or {}).get("rope_type", "default")
    if config.hidden_act != "silu" or rotation not in _ROTATIONS:
        return (
            f"the kernels know neither other activations than silu ({config.hidden_act}) nor all rotations ({rotation})"
        )
    if width % LANES or width > _MAX_WIDTH:
        return f"attention heads are {width} wide: the kernels want a multiple of {LANES} up to {_MAX_WIDTH}"
    if any(n % 32 for n in (config.hidden_size, config.intermediate_size, config.num_attention_heads * width)):
        return "the kernels want widths that are multiples of 32"
    if page_size % LANES:
        return f"pages have {page_size} tokens: the kernels want a multiple of {LANES}"
    if any(part.bias is not None for part in (layer.self_attn.o_proj, layer.mlp.gate_proj, layer.mlp.down_proj)):
        return "the kernels know biases in the projections of queries, keys and values only"
    return None


class NativeModel:
    """Weights packed from a transformers `module`, which is not needed afterwards: one that has no `obstacle`.

    A row of logits depends on its sequence alone, to the last bit: not on what else is in the batch, nor on how the
    sequence was cut into chunks, nor on the number of threads. With int4 weights, the embedding and the head are int8:
    half a byte is too coarse where each number stands for a whole token. The cache is f16 then.
    """

    device = torch.device("cpu")

    def __init__(
        self,
        module: Any,
        library: ctypes.CDLL,
        *,
        weights: Format,
        context: int,
        eos_tokens: frozenset[TokenId],
        num_threads: int,
    ) -> None:
        config = module.config
        self.name = type(module).__name__
        self.vocab_size: int = config.vocab_size
        self.context = context
        self.eos_tokens = eos_tokens
        self.dtype = _CACHES.get(weights, torch.float16)
        self.layers = [
            LayerShape(config.num_key_value_heads, _width(config), _width(config))
        ] * config.num_hidden_layers
        self._owned: list[Matrix | torch.Tensor] = []
        self._c = self._pack(module, weights)
        self._storages: dict[int, tuple[Storage, CStorage]] = {}
        self._memory = torch.empty(0, dtype=torch.uint8)
        self._logits = torch.empty(0, 0)
        self._library = library
        self._pool: int = library.aici_pool_new(num_threads)

    def __del__(self) -> None:
        if pool := getattr(self, "_pool", None):
            self._library.aici_pool_free(pool)

    @property
    def weight_bytes(self) -> int:
        """Of all matrices; a step reads all of them but an embedding that is not the head."""
        return sum(each.num_bytes for each in self._owned if isinstance(each, Matrix))

    @property
    def token_bytes(self) -> int:
        return sum(layer.num_elements for layer in self.layers) * self.dtype.itemsize

    def make_storage(self, *, num_pages: int, page_size: int) -> Storage:
        """In a page, the kernels lay numbers out in an order of their own; pages are where they always are."""
        storage = Storage(self.layers, num_pages=num_pages, page_size=page_size, dtype=self.dtype, device=self.device)
        pointers = ctypes.c_void_p * len(self.layers)
        c = CStorage(
            pointers(*(tensor.data_ptr() for tensor in storage.keys)),
            pointers(*(tensor.data_ptr() for tensor in storage.values)),
            _CACHE_FORMATS[self.dtype],
            page_size,
        )
        self._storages[id(storage)] = storage, c
        return storage

    def forward(self, storage: Storage, chunks: Sequence[Chunk]) -> torch.Tensor:
        first = _starts(len(chunk.tokens) for chunk in chunks)
        page_at = _starts(len(chunk.view.pages) for chunk in chunks)
        tokens = np.fromiter(itertools.chain.from_iterable(chunk.tokens for chunk in chunks), np.int32, first[-1])
        pages = np.fromiter(itertools.chain.from_iterable(chunk.view.pages for chunk in chunks), np.int32, page_at[-1])
        start = np.fromiter((chunk.start for chunk in chunks), np.int32, len(chunks))
        rows = np.fromiter(_logit_rows(chunks, first[1:]), np.int32)
        arrays = (tokens, first, start, page_at, pages, rows)
        batch = CBatch(len(tokens), len(chunks), len(rows), *(array.ctypes.data for array in arrays))
        logits = self._logits_for(len(rows))
        c_storage = self._storages[id(storage)][1]
        self._library.aici_llama_step(
            self._pool, self._c, c_storage, batch, self._scratch(len(tokens)), logits.data_ptr()
        )
        return logits[:, : self.vocab_size]

    def _scratch(self, num_tokens: int) -> int:
        """The address of enough memory, aligned to 64 bytes."""
        need = self._library.aici_llama_memory(self._c, num_tokens) + 64
        if self._memory.numel() < need:
            self._memory = torch.empty(need, dtype=torch.uint8)
        return -(-self._memory.data_ptr() // 64) * 64

    def _logits_for(self, num_rows: int) -> torch.Tensor:
        """Kept between steps: fresh memory would cost more than sampling."""
        if len(self._logits) < num_rows:
            self._logits = torch.empty(num_rows, self._c.head.rows)
        return self._logits[:num_rows]

    def _pack(self, module: Any, weights: Format) -> CLlama:
        config, model, head = module.config, module.model, module.lm_head.weight
        outer = Format.INT8 if weights is Format.INT4 else weights
        layers = [self._layer(layer, weights) for layer in model.layers]
        packed_head = self._matrix(head, outer)
        embedding = model.embed_tokens.weight
        return CLlama(
            len(layers),
            config.hidden_size,
            config.intermediate_size,
            config.num_attention_heads,
            config.num_key_value_heads,
            _width(config),
            config.rms_norm_eps,
            model.rotary_emb.attention_scaling,
            self._vector(model.rotary_emb.inv_freq),
            self._vector(model.norm.weight),
            packed_head if embedding is head else self._matrix(embedding, outer),
            packed_head,
            (CLayer * len(layers))(*layers),
        )

    def _layer(self, layer: Any, weights: Format) -> CLayer:
        attention, mlp = layer.self_attn, layer.mlp
        inputs = (attention.q_proj, attention.k_proj, attention.v_proj)
        bias = None if inputs[0].bias is None else torch.cat([part.bias for part in inputs])
        gate, up = (part.weight.unflatten(0, (-1, LANES)) for part in (mlp.gate_proj, mlp.up_proj))
        return CLayer(
            self._vector(layer.input_layernorm.weight),
            self._vector(layer.post_attention_layernorm.weight),
            self._vector(attention.q_norm.weight) if hasattr(attention, "q_norm") else None,
            self._vector(attention.k_norm.weight) if hasattr(attention, "k_norm") else None,
            self._matrix(torch.cat([part.weight for part in inputs]), weights, bias),
            self._matrix(attention.o_proj.weight, weights),
            self._matrix(torch.stack([gate, up], 1).flatten(0, 2), weights),
            self._matrix(mlp.down_proj.weight, weights),
            _window(attention) or 0,
        )

    def _matrix(self, weight: torch.Tensor, form: Format, bias: torch.Tensor | None = None) -> CMatrix:
        matrix = pack(weight, form, bias)
        self._owned.append(matrix)
        return matrix.c

    def _vector(self, tensor: torch.Tensor) -> int:
        vector = tensor.detach().float().clone(memory_format=torch.contiguous_format)
        self._owned.append(vector)
        return vector.data_ptr()


def _width(config: Any) -> int:
    """Of a head."""
    return int(getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads)


def _window(attention: Any) -> int | None:
    """Of a layer. Mistral's layers ask their configuration anew each time."""
    holder = attention if hasattr(attention, "sliding_window") else attention.config
    window: int | None = getattr(holder, "sliding_window", None)
    return window


def _starts(lens: Iterator[int]) -> "np.ndarray[tuple[int], np.dtype[np.int32]]":
    """Where each begins, and where the last one ends."""
    return np.array(list(itertools.accumulate(lens, initial=0)), np.int32)


def _logit_rows(chunks: Sequence[Chunk], ends: Iterable[int]) -> Iterator[int]:
    for chunk, end in zip(chunks, ends, strict=True):
        yield from range(end - chunk.num_logits, end)
