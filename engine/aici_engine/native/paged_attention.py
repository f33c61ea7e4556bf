"""The C attention kernel as an `AttentionKernel`, for transformers models that the C decoder does not support."""

import ctypes
from typing import Final

import torch

from aici_engine.cache.storage import KVStorage, LayerShape
from aici_engine.model.batch import StepBatch
from aici_engine.model.cuda_graphs import PaddedBatch
from aici_engine.native.bindings import CAttention, CBatch, CCache, Format
from aici_engine.native.matrix_layout import LANES
from aici_engine.native.thread_pool import ThreadPool

CACHE_FORMATS: Final = {torch.float32: Format.F32, torch.bfloat16: Format.BF16}
MAX_HEAD_DIM: Final = 256
"""Largest head_dim of the kernel."""


class PagedKernel:
    """Attention in C on the pages of the cache. The layout inside a page is described in `src/attention.h`."""

    page_size = LANES

    def __init__(self, pool: ThreadPool) -> None:
        self._pool = pool
        self._last_batch: tuple[object, CBatch, list[torch.Tensor]] | None = None

    def serves(self, layer: LayerShape) -> bool:
        return not layer.has_sinks and layer.key_dim == layer.value_dim and fits(layer.key_dim)

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
        rows = [each.float().contiguous() for each in (queries.float() * shape.scale, keys, values)]
        out = torch.empty_like(rows[0])
        cache = CCache(
            storage.keys[layer].data_ptr(),
            storage.values[layer].data_ptr(),
            CACHE_FORMATS[storage.keys[layer].dtype],
            storage.page_size,
            shape.num_kv_heads,
            shape.key_dim,
        )
        attention = CAttention(
            ctypes.pointer(cache),
            ctypes.pointer(self._c_batch(batch)),
            *(each.data_ptr() for each in rows),
            queries.shape[1] // shape.num_kv_heads,
            shape.window,
            shape.cap,
            out.data_ptr(),
        )
        self._pool.library.aici_attend(self._pool.pointer, attention)
        return out.to(queries.dtype)

    def _c_batch(self, batch: StepBatch | PaddedBatch) -> CBatch:
        """Return the C structure of the batch. The structure is built once per step and reused by all layers."""
        if self._last_batch is None or self._last_batch[0] is not batch:
            pages = batch.pages
            first, table = pages.query_starts, pages.table
            start = pages.lens - first.diff()
            page_starts = torch.arange(0, table.numel(), table.shape[1], dtype=torch.int32)
            arrays = [first, start, page_starts, table]
            c = CBatch(int(first[-1]), len(table), 0, None, *(each.data_ptr() for each in arrays), None)
            self._last_batch = batch, c, arrays
        return self._last_batch[1]


def fits(head_dim: int) -> bool:
    """Whether the kernels support this head dimension."""
    return head_dim % LANES == 0 and head_dim <= MAX_HEAD_DIM
