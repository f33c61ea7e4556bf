"""The page tables of all sequences."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from aici_base.ids import SeqId
from aici_engine.cache.ids import PageId
from aici_engine.cache.prefix_cache import PrefixNode


@dataclass(slots=True)
class PageTable:
    """The pages of one sequence. Token `i` lies in `pages[i // page_size]`.

    `num_cached`: tokens with valid keys and values. `path`: the complete pages, as nodes of the prefix cache. `salt`:
    sequences with the same salt share pages.
    """

    salt: str | None = None
    pages: list[PageId] = field(default_factory=list)
    path: list[PrefixNode] = field(default_factory=list)
    num_cached: int = 0


class PageTables:
    """Page tables by sequence id. Raises KeyError for an unknown sequence."""

    def __init__(self) -> None:
        self._tables: dict[SeqId, PageTable] = {}

    def add(self, seq_id: SeqId, table: PageTable) -> None:
        if seq_id in self._tables:
            raise ValueError(f"sequence {seq_id} has a page table already")
        self._tables[seq_id] = table

    def remove(self, seq_id: SeqId) -> PageTable:
        return self._tables.pop(seq_id)

    def __getitem__(self, seq_id: SeqId) -> PageTable:
        return self._tables[seq_id]

    def __contains__(self, seq_id: SeqId) -> bool:
        return seq_id in self._tables

    def __iter__(self) -> Iterator[PageTable]:
        return iter(self._tables.values())

    def __len__(self) -> int:
        return len(self._tables)
