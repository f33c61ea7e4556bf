"""The storage of pages in tensors of torch."""

from collections.abc import Sequence

import torch

from aici_engine.cache.storage import KVStorage, LayerShape


def torch_storage(
    layers: Sequence[LayerShape], *, num_pages: int, page_size: int, dtype: torch.dtype, device: torch.device
) -> KVStorage:
    """Allocate the pages on `device`. On a GPU all rows begin as zeros, because kernels read whole pages."""
    rows = num_pages * page_size
    new = torch.empty if device.type == "cpu" else torch.zeros
    return KVStorage(
        [new(rows, shape.num_kv_heads, shape.key_dim, dtype=dtype, device=device) for shape in layers],
        [new(rows, shape.num_kv_heads, shape.value_dim, dtype=dtype, device=device) for shape in layers],
        page_size=page_size,
    )
