"""Paged attention in plain torch, in the shape in which transformers calls an attention function."""

import torch
from torch.nn import functional

from aici_engine.cache import view
from aici_engine.cache.storage import Storage
from aici_engine.model.batch import StepBatch

IMPLEMENTATION = "aici_paged"
"""The name under which transformers knows `paged_attention`."""


class Paged:
    """What one step hands to every layer: travels as the keyword `aici` through the model's forward."""

    __slots__ = ("batch", "storage")

    def __init__(self, storage: Storage, batch: StepBatch) -> None:
        self.storage = storage
        self.batch = batch


def paged_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: object,  # noqa: ARG001 the batch knows who sees whom
    *,
    aici: Paged,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: torch.Tensor | None = None,
    **neutral: object,  # noqa: ARG001 the probe let pass only what changes nothing
) -> tuple[torch.Tensor, None]:
    """Write this step's keys and values to the cache, then attend from each token to its sequence up to itself.

    `query` (1, Hq, T, D), `key` and `value` (1, Hkv, T, D); returns (1, T, Hq, Dv). `softcap`: logits pass through
    `softcap * tanh(x / softcap)`. `s_aux` (Hq,): a sink's logit joins each softmax and its weight is dropped.
    """
    layer = module.layer_idx
    assert isinstance(layer, int)
    storage, batch = aici.storage, aici.batch
    view.write(storage, layer, batch.write_slots, key[0].transpose(0, 1), value[0].transpose(0, 1))
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    num_heads, num_kv_heads = query.shape[1], key.shape[1]
    # Queries of the heads that share keys stand together: (T, Hkv, G, D).
    queries = query[0].transpose(0, 1).unflatten(1, (num_kv_heads, num_heads // num_kv_heads))
    plain = softcap is None and s_aux is None
    sinks = None if s_aux is None else s_aux.view(num_kv_heads, -1, 1, 1)
    out = query.new_empty(query.shape[2], num_kv_heads, num_heads // num_kv_heads, value.shape[-1])
    for group in batch.decodes:
        rows = group.last - group.first
        keys, values = view.gather(storage, layer, group.slots)
        keys = keys.unflatten(0, (rows, group.max_len)).transpose(1, 2)  # (rows, Hkv, L, D)
        values = values.unflatten(0, (rows, group.max_len)).transpose(1, 2)
        mask = group.mask(sliding_window)
        q = queries[group.first : group.last]
        if plain:
            part = functional.scaled_dot_product_attention(q, keys, values, attn_mask=mask, scale=scale)
        else:
            wide = None if mask is None else mask[:, None]
            part = _attend(q.unsqueeze(3), keys.unsqueeze(2), values.unsqueeze(2), wide, scale, softcap, sinks).squeeze(
                3
            )
        out[group.first : group.last] = part
    for chunk in batch.chunks:
        keys, values = view.gather(storage, layer, chunk.slots)
        keys, values = keys.transpose(0, 1), values.transpose(0, 1)  # (Hkv, L, D)
        mask = chunk.mask(sliding_window)
        q = queries[chunk.first : chunk.last]
        if plain:
            part = functional.scaled_dot_product_attention(
                q.flatten(1, 2).transpose(0, 1)[None],
                keys[None],
                values[None],
                attn_mask=mask,
                is_causal=mask is None,
                scale=scale,
                enable_gqa=num_heads != num_kv_heads,
            )[0]  # (Hq, q, Dv)
            out[chunk.first : chunk.last] = part.transpose(0, 1).unflatten(1, (num_kv_heads, -1))
        else:
            if mask is None:
                mask = torch.ones(len(q), len(q), dtype=torch.bool, device=q.device).tril()
            part = _attend(q.permute(1, 2, 0, 3), keys[:, None], values[:, None], mask, scale, softcap, sinks)
            out[chunk.first : chunk.last] = part.permute(2, 0, 1, 3)
    return out.flatten(1, 2)[None], None


def _attend(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    mask: torch.Tensor | None,
    scale: float,
    softcap: float | None,
    sinks: torch.Tensor | None,
) -> torch.Tensor:
    """q (..., Hkv, G, Tq, D), k and v (..., Hkv, 1, L, D), mask broadcastable to (..., Hkv, G, Tq, L)."""
    logits = (q @ k.transpose(-1, -2)).float() * scale
    if softcap is not None:
        logits = softcap * torch.tanh(logits / softcap)
    if mask is not None:
        logits = logits.masked_fill(~mask, float("-inf"))
    if sinks is None:
        weights = logits.softmax(-1)
    else:
        sink = sinks.float().expand(*logits.shape[:-1], 1)
        weights = torch.cat([logits, sink], -1).softmax(-1)[..., :-1]
    return weights.to(v.dtype) @ v
