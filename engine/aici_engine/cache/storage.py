"""The arrays behind the pages."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from aici_engine.arrays import Array, discard
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
    costs physical memory from its first write on. Rows never written may hold garbage, NaN included, so a gather must
    not read such rows, even to mask the numbers later.
    """

    def __init__(self, keys: Sequence[Array], values: Sequence[Array], *, page_size: int) -> None:
        self.page_size = page_size
        self.keys = list(keys)
        self.values = list(values)

    def copy_page(self, source: PageId, target: PageId) -> None:
        """Copy the keys and values of all layers, for copy on write."""
        size = self.page_size
        for array in (*self.keys, *self.values):
            array[target * size : (target + 1) * size] = array[source * size : (source + 1) * size]

    def discard(self, pages: Sequence[PageId]) -> None:
        """Give the memory of pages on the CPU back to the system. `pages`: in order. Their contents are lost.

        Keys and values of a page take a part of a page of the system or a few of these: long runs of pages give back
        most of their memory, and single pages little.
        """
        for first, end in _runs(pages):
            for array in (*self.keys, *self.values):
                discard(array, first * self.page_size, end * self.page_size)


def _runs(pages: Sequence[PageId]) -> Iterator[tuple[int, int]]:
    """Yield the first page and the page after the last of every run of adjacent pages."""
    for _, run in itertools.groupby(enumerate(pages), lambda each: each[1] - each[0]):
        found = [page for _, page in run]
        yield found[0], found[-1] + 1
