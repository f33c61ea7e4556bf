"""The tensors behind the pages."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from aici_engine.cache.ids import PageId


@dataclass(frozen=True, slots=True)
class LayerShape:
    """Heads and head widths of one layer's keys and values, and how it attends to them, as the layer itself said when
    it was probed.

    `scale`: of scores. `window`: how many tokens each sees, 0 for all. `cap`: of scores, by tanh; 0 for none.
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
        """Its attention is a softmax and nothing else."""
        return not self.cap and not self.has_sinks

    @property
    def num_elements(self) -> int:
        """Per token."""
        return self.num_kv_heads * (self.key_dim + self.value_dim)


class KVStorage:
    """`keys[layer]`, `values[layer]`: (num_pages * page_size, Hkv, D), a row a slot; slot = page * page_size + offset.

    On the CPU, memory is only reserved: a page costs physical memory from its first write. KVRows never written hold
    garbage, NaN included, so a gather must not touch them even if it masks them later. A device's kernels read whole
    pages: there they begin as zeros.
    """

    def __init__(
        self, layers: Sequence[LayerShape], *, num_pages: int, page_size: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        slots = num_pages * page_size
        self.page_size = page_size
        new = torch.empty if device.type == "cpu" else torch.zeros
        self.keys = [new(slots, shape.num_kv_heads, shape.key_dim, dtype=dtype, device=device) for shape in layers]
        self.values = [new(slots, shape.num_kv_heads, shape.value_dim, dtype=dtype, device=device) for shape in layers]

    def copy_page(self, source: PageId, target: PageId) -> None:
        """For copy on write."""
        size = self.page_size
        for tensor in (*self.keys, *self.values):
            tensor[target * size : (target + 1) * size] = tensor[source * size : (source + 1) * size]
