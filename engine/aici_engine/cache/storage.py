"""The tensors behind the pages."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from aici_engine.cache.ids import PageId


@dataclass(frozen=True, slots=True)
class LayerShape:
    """The shape of a layer's keys and values, and the layer's attention, as the layer itself said during the probe.

    `key_dim`, `value_dim`: numbers a head. `scale`: factor of the scores. `window`: tokens that a query sees, 0 for
    all. `cap`: soft cap of the scores by tanh, 0 for no cap.
    """

    num_kv_heads: int
    key_dim: int
    value_dim: int
    scale: float = 1.0
    window: int = 0
    cap: float = 0.0
    has_sinks: bool = False

    @property
    def plain(self) -> bool:
        """Return whether the attention is a softmax and nothing else."""
        return not self.cap and not self.has_sinks

    @property
    def num_elements(self) -> int:
        """Numbers of cache for a token, keys and values together."""
        return self.num_kv_heads * (self.key_dim + self.value_dim)


class KVStorage:
    """The keys and values of all layers: `keys[layer]` and `values[layer]` are (num_pages * page_size, Hkv, D).

    A token has one row, its KV row: page * page_size + offset in the page. On the CPU, memory is only reserved: a page
    costs physical memory from its first write on. Rows never written hold garbage, NaN included, so a gather must not
    read such rows, even to mask the numbers later. On a GPU all rows begin as zeros, because kernels read whole pages.
    """

    def __init__(
        self, layers: Sequence[LayerShape], *, num_pages: int, page_size: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        rows = num_pages * page_size
        self.page_size = page_size
        new = torch.empty if device.type == "cpu" else torch.zeros
        self.keys = [new(rows, shape.num_kv_heads, shape.key_dim, dtype=dtype, device=device) for shape in layers]
        self.values = [new(rows, shape.num_kv_heads, shape.value_dim, dtype=dtype, device=device) for shape in layers]

    def copy_page(self, source: PageId, target: PageId) -> None:
        """Copy the keys and values of all layers, for copy on write."""
        size = self.page_size
        for tensor in (*self.keys, *self.values):
            tensor[target * size : (target + 1) * size] = tensor[source * size : (source + 1) * size]
