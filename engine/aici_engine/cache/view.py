"""The cache as the attention layers see it in one step."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from aici_engine.cache.ids import PageId
from aici_engine.cache.storage import KVStorage

if TYPE_CHECKING:
    import torch

KVRows = npt.NDArray[np.int64]
"""Row numbers of `KVStorage`, one a token."""


def kv_rows(pages: Sequence[PageId], page_size: int, start: int, end: int) -> KVRows:
    """Return the KV rows (end - start,) of the tokens `start` to `end` - 1 of a sequence with these pages, in order."""
    first = start // page_size
    own = np.fromiter(pages[first:], np.int64, len(pages) - first)
    return (own[:, None] * page_size + np.arange(page_size)).reshape(-1)[
        start - first * page_size : end - first * page_size
    ]


def write(storage: KVStorage, layer: int, rows: "torch.Tensor", keys: "torch.Tensor", values: "torch.Tensor") -> None:
    """Write `keys` and `values` (T, Hkv, D), rotary embedding applied, to the KV rows `rows` (T,)."""
    storage.keys[layer].index_copy_(0, rows, keys)
    storage.values[layer].index_copy_(0, rows, values)


def gather(storage: KVStorage, layer: int, rows: "torch.Tensor") -> "tuple[torch.Tensor, torch.Tensor]":
    """Return keys and values (T, Hkv, D) of the KV rows `rows` (T,)."""
    return storage.keys[layer].index_select(0, rows), storage.values[layer].index_select(0, rows)
