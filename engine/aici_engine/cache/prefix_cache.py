"""Which pages hold which tokens after which others: a tree, page by page. What is found is what was asked for: tokens
are compared, no hash is trusted."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from aici_base.ids import TokenId
from aici_engine.cache.ids import PageId

Key: TypeAlias = tuple[TokenId | str | None, ...]
"""The tokens of one full page; before those of a sequence's first page stands its salt."""


@dataclass(eq=False, slots=True)
class PrefixNode:
    """A page with the keys and values of `key`'s tokens as they are after those of `parent` and all before it."""

    page: PageId
    key: Key
    parent: "PrefixNode | None"
    children: "dict[Key, PrefixNode]" = field(default_factory=dict)


class PrefixCache:
    """`parent` None: before the first page."""

    def __init__(self) -> None:
        self._firsts: dict[Key, PrefixNode] = {}
        self._nodes: dict[PageId, PrefixNode] = {}

    def find(self, parent: PrefixNode | None, key: Key) -> PrefixNode | None:
        return self._after(parent).get(key)

    def insert(self, parent: PrefixNode | None, key: Key, page: PageId) -> PrefixNode:
        """Nothing is found there yet, and `page` stands nowhere."""
        node = PrefixNode(page, key, parent)
        self._after(parent)[key] = self._nodes[page] = node
        return node

    def remove(self, page: PageId) -> None:
        """ValueError for a page that others follow: what nobody finds any more could never be given up."""
        if self._nodes[page].children:
            raise ValueError(f"page {page} has others after it")
        node = self._nodes.pop(page)
        del self._after(node.parent)[node.key]

    def has_children(self, page: PageId) -> bool:
        return page in self._nodes and bool(self._nodes[page].children)

    def __contains__(self, page: PageId) -> bool:
        return page in self._nodes

    def __len__(self) -> int:
        return len(self._nodes)

    def __iter__(self) -> Iterator[PrefixNode]:
        """As they can be reached: parents before their children."""
        nodes = list(self._firsts.values())
        while nodes:
            yield (node := nodes.pop())
            nodes.extend(node.children.values())

    def _after(self, parent: PrefixNode | None) -> dict[Key, PrefixNode]:
        return self._firsts if parent is None else parent.children
