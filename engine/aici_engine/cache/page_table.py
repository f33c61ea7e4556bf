"""Which pages hold the tokens of each sequence."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from aici_base.ids import SeqId
from aici_engine.cache.ids import PageId
from aici_engine.cache.prefix_cache import PrefixNode


@dataclass(slots=True)
class PageTable:
    """Token `i` lies in `pages[i // page_size]`; the keys and values of the first `num_cached` tokens are there.

    `path`: the complete pages as the prefix cache has them. `salt`: pages are shared among those that have the same.
    """

    salt: str | None = None
    pages: list[PageId] = field(default_factory=list)
    path: list[PrefixNode] = field(default_factory=list)
    num_cached: int = 0


class PageTables:
    """Sequence id to its pages. A sequence that was never added, or was removed, raises KeyError."""

    def __init__(self) -> None:
        self._tasks: dict[SeqId, PageTable] = {}

    def add(self, seq_id: SeqId, task: PageTable) -> None:
        if seq_id in self._tasks:
            raise ValueError(f"sequence {seq_id} has a page table already")
        self._tasks[seq_id] = task

    def remove(self, seq_id: SeqId) -> PageTable:
        return self._tasks.pop(seq_id)

    def __getitem__(self, seq_id: SeqId) -> PageTable:
        return self._tasks[seq_id]

    def __contains__(self, seq_id: SeqId) -> bool:
        return seq_id in self._tasks

    def __iter__(self) -> Iterator[PageTable]:
        return iter(self._tasks.values())

    def __len__(self) -> int:
        return len(self._tasks)
