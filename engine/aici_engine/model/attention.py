"""Paged attention in plain torch, with the signature of a transformers attention function."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch.nn import functional

from aici_engine.cache import view
from aici_engine.cache.storage import KVStorage, LayerShape
from aici_engine.model.batch import StepBatch
from aici_engine.model.cuda_graphs import PaddedBatch

IMPLEMENTATION = "aici_paged"
"""The name of `paged_attention` in the registry of transformers."""


class AttentionKernel(Protocol):
    """A kernel that reads keys and values from the pages of the cache, without a copy.

    The page size of the cache must be a multiple of `page_size` (tokens). The layout inside a page is private to the
    kernel.
    """

    @property
    def page_size(self) -> int: ...

    def serves(self, layer: LayerShape) -> bool: ...

    def __call__(
        self,
        queries: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        storage: KVStorage,
        batch: StepBatch | PaddedBatch,
        *,
        layer: int,
        shape: LayerShape,
    ) -> torch.Tensor:
        """Write this step's `keys` and `values` (T, Hkv, D), then return the attention of `queries` (T, Hq, D)."""


class StepContext:
    """The state of one step for all layers: the model's forward passes the object down as the keyword `aici`."""

    __slots__ = ("batch", "kernel", "layers", "storage")

    def __init__(
        self,
        storage: KVStorage,
        batch: StepBatch | PaddedBatch,
        layers: Sequence[LayerShape],
        kernel: AttentionKernel | None = None,
    ) -> None:
        self.storage = storage
        self.batch = batch
        self.layers = layers
        self.kernel = kernel if kernel is not None and storage.page_size % kernel.page_size == 0 else None


def paged_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: object,  # noqa: ARG001 the batch holds the masks
    *,
    aici: StepContext,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: torch.Tensor | None = None,
    **neutral: object,  # noqa: ARG001 the probe admits only options without effect
) -> tuple[torch.Tensor, None]:
    """Write this step's keys and values to the cache, then compute causal attention for every token of the batch.

    `query` (1, Hq, T, D), `key` and `value` (1, Hkv, T, D); returns (1, T, Hq, Dv). `softcap`: scores become
    `softcap * tanh(x / softcap)`. `s_aux` (Hq,): the logit of an attention sink joins the softmax of its head; the
    weight of the sink is dropped.
    """
    layer = module.layer_idx
    assert isinstance(layer, int)
    storage, batch, shape, kernel = aici.storage, aici.batch, aici.layers[layer], aici.kernel
    queries, keys, values = (each[0].transpose(0, 1) for each in (query, key, value))
    if kernel is not None and kernel.serves(shape):
        return kernel(queries, keys, values, storage, batch, layer=layer, shape=shape)[None], None
    assert isinstance(batch, StepBatch), "padded batches are for kernels that read pages"
    view.write(storage, layer, batch.write_rows, keys, values)
    num_heads, num_kv_heads, num_tokens = query.shape[1], key.shape[1], query.shape[2]
    softmax = _Softmax(
        scale=query.shape[-1] ** -0.5 if scaling is None else scaling,
        softcap=softcap,
        sinks=None if s_aux is None else s_aux.view(num_kv_heads, -1, 1, 1),
    )
    # (T, Hkv, G, D): the G query heads of a key head stand together.
    grouped = queries.reshape(num_tokens, num_kv_heads, num_heads // num_kv_heads, -1)
    out = query.new_empty(*grouped.shape[:3], value.shape[-1])
    for group in batch.decodes:
        keys, values = view.gather(storage, layer, group.kv_rows)
        rows = slice(group.first, group.last)
        out[rows] = _decode(grouped[rows], keys, values, group.mask(sliding_window), softmax)
    for chunk in batch.chunks:
        keys, values = view.gather(storage, layer, chunk.kv_rows)
        rows = slice(chunk.first, chunk.last)
        out[rows] = _chunk(grouped[rows], keys, values, chunk.mask(sliding_window), softmax)
    return out.flatten(1, 2)[None], None


@dataclass(frozen=True, slots=True)
class _Softmax:
    """`sinks` (Hkv, G, 1, 1)."""

    scale: float
    softcap: float | None
    sinks: torch.Tensor | None

    @property
    def plain(self) -> bool:
        return self.softcap is None and self.sinks is None


def _decode(
    queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, mask: torch.Tensor | None, softmax: _Softmax
) -> torch.Tensor:
    """`queries` (rows, Hkv, G, D); `keys`, `values` (rows * L, Hkv, D); `mask` (rows, 1, 1, L)."""
    rows = len(queries)
    keys = keys.view(rows, -1, *keys.shape[1:]).transpose(1, 2)  # (rows, Hkv, L, D)
    values = values.view(rows, -1, *values.shape[1:]).transpose(1, 2)
    if softmax.plain:
        # The heads of a group take the place of query tokens, so no key is repeated.
        return functional.scaled_dot_product_attention(queries, keys, values, attn_mask=mask, scale=softmax.scale)
    wide = None if mask is None else mask[:, None]
    return _attend(queries[:, :, :, None], keys[:, :, None], values[:, :, None], wide, softmax)[:, :, :, 0]


def _chunk(
    queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, mask: torch.Tensor | None, softmax: _Softmax
) -> torch.Tensor:
    """`queries` (q, Hkv, G, D); `keys`, `values` (L, Hkv, D); `mask` (q, L), None if causal and q == L."""
    keys, values = keys.transpose(0, 1), values.transpose(0, 1)  # (Hkv, L, D)
    if softmax.plain:
        out = functional.scaled_dot_product_attention(
            queries.flatten(1, 2).transpose(0, 1)[None],
            keys[None],
            values[None],
            attn_mask=mask,
            is_causal=mask is None,
            scale=softmax.scale,
            enable_gqa=queries.shape[2] > 1,
        )
        return out[0].transpose(0, 1).reshape(*queries.shape[:3], -1)
    if mask is None:
        mask = torch.ones(len(queries), len(queries), dtype=torch.bool, device=queries.device).tril()
    return _attend(queries.permute(1, 2, 0, 3), keys[:, None], values[:, None], mask, softmax).permute(2, 0, 1, 3)


def _attend(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    mask: torch.Tensor | None,
    softmax: _Softmax,
) -> torch.Tensor:
    """q (..., Hkv, G, Tq, D), k and v (..., Hkv, 1, L, D), mask broadcasts to (..., Hkv, G, Tq, L)."""
    logits = (q @ k.transpose(-1, -2)).float() * softmax.scale
    if softmax.softcap is not None:
        logits = softmax.softcap * torch.tanh(logits / softmax.softcap)
    if mask is not None:
        logits = logits.masked_fill(~mask, float("-inf"))
    if softmax.sinks is None:
        weights = logits.softmax(-1)
    else:
        sink = softmax.sinks.float().expand(*logits.shape[:-1], 1)
        weights = torch.cat([logits, sink], -1).softmax(-1)[..., :-1]
    return weights.to(v.dtype) @ v
