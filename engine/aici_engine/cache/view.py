"""The cache as the attention layers see it in one step."""

import numpy as np
import numpy.typing as npt
import torch

from aici_engine.cache.ids import PageId
from aici_engine.cache.storage import KVStorage

KVRows = npt.NDArray[np.int64]
"""Row numbers of `KVStorage`, one a token."""


class KVCacheView:
    """The tokens of one sequence in the cache: page table and length, over the shared storage.

    Valid until the pages of the sequence change, between two steps.
    """

    def __init__(self, storage: KVStorage, page_table: list[PageId], total_len: int) -> None:
        self._storage = storage
        self._pages = page_table
        self.total_len = total_len

    @property
    def pages(self) -> list[PageId]:
        return self._pages

    def kv_rows(self, start: int = 0) -> KVRows:
        """Return the KV rows (total_len - start,) of the tokens from `start` on, in order."""
        size = self._storage.page_size
        first = start // size
        pages = np.fromiter(self._pages[first:], np.int64, len(self._pages) - first)
        return (pages[:, None] * size + np.arange(size)).reshape(-1)[
            start - first * size : self.total_len - first * size
        ]

    def write(self, layer: int, rows: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> None:
        """Write `keys` and `values` (T, Hkv, D), rotary embedding applied, to the KV rows `rows` (T,)."""
        write(self._storage, layer, rows, keys, values)

    def gather(self, layer: int, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return keys and values (T, Hkv, D) of the KV rows `rows` (T,)."""
        return gather(self._storage, layer, rows)


def write(storage: KVStorage, layer: int, rows: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> None:
    """Do as `KVCacheView.write`, for the tokens of many sequences at once."""
    storage.keys[layer].index_copy_(0, rows, keys)
    storage.values[layer].index_copy_(0, rows, values)


def gather(storage: KVStorage, layer: int, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Do as `KVCacheView.gather`, for the tokens of many sequences at once."""
    return storage.keys[layer].index_select(0, rows), storage.values[layer].index_select(0, rows)
