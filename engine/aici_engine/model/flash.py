"""FlashAttention on the cache's pages, as torch brings it along."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch

from aici_engine.cache.storage import LayerShape, Storage
from aici_engine.model.batch import Pages

Attend = Callable[..., Any]
"""With the arguments of torch.nn.attention.varlen.varlen_attn."""

PAGE_SIZE: Final = 256
"""FlashAttention 2 reads pages of a multiple of it."""
_MAX_WIDTH: Final = 256
_AMPERE: Final = (8, 0)


@dataclass(frozen=True, slots=True)
class Kernel:
    """Softmax attention and nothing else: no soft cap, no sinks. Pages hold a multiple of `page_size` tokens."""

    attend: Attend
    page_size: int

    def __call__(
        self, queries: torch.Tensor, storage: Storage, layer: int, pages: Pages, *, scale: float, window: int | None
    ) -> torch.Tensor:
        """`queries` (T, Hq, D); returns (T, Hq, D)."""
        keys, values = (
            tensor.view(-1, storage.page_size, *tensor.shape[1:])
            for tensor in (storage.keys[layer], storage.values[layer])
        )
        found: torch.Tensor = self.attend(
            queries,
            keys,
            values,
            pages.query_starts,
            pages.key_starts,
            pages.max_queries,
            pages.max_keys,
            scale=scale,
            # It counts those to the left of a query, we the query too.
            window_size=(-1 if window is None else window - 1, 0),
            enable_gqa=queries.shape[1] != keys.shape[2],
            seqused_k=pages.lens,
            block_table=pages.table,
            # Left to itself, torch 2.13 splits long sequences, and loses rows (pytorch issue 194167). A row's result
            # does not depend on its company then, either.
            num_splits=1,
        )
        return found


def kernel_for(device: torch.device, dtype: torch.dtype, layers: Sequence[LayerShape]) -> Kernel | None:
    """None where FlashAttention cannot serve: elsewhere than on a GPU of NVIDIA's, Ampere or newer, too."""
    if device.type != "cuda" or torch.version.cuda is None or not suits(dtype, layers):
        return None
    if torch.cuda.get_device_capability(device) < _AMPERE:
        return None
    from torch.nn.attention.varlen import varlen_attn

    return Kernel(varlen_attn, PAGE_SIZE)


def suits(dtype: torch.dtype, layers: Sequence[LayerShape]) -> bool:
    return dtype in (torch.bfloat16, torch.float16) and all(
        shape.key_dim == shape.value_dim <= _MAX_WIDTH and shape.key_dim % 8 == 0 for shape in layers
    )
