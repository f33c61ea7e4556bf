"""A tree of complete pages, to find a page by its tokens and all tokens before. Tokens are compared; no hash is
trusted."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from aici_base.ids import TokenId
from aici_engine.cache.ids import PageId

Key: TypeAlias = tuple[TokenId | str | None, ...]
"""The tokens of a full page. In the key of a sequence's first page, the salt stands before the tokens."""


@dataclass(eq=False, slots=True)
class PrefixNode:
    """A page with the keys and values of the tokens `key`, which follow the tokens of `parent` and of all its
    parents."""

    page: PageId
    key: Key
    parent: "PrefixNode | None"
    children: "dict[Key, PrefixNode]" = field(default_factory=dict)


class PrefixCache:
    """The tree. A first page has the parent `None`."""

    def __init__(self) -> None:
        self._firsts: dict[Key, PrefixNode] = {}
        self._nodes: dict[PageId, PrefixNode] = {}

    def find(self, parent: PrefixNode | None, key: Key) -> PrefixNode | None:
        return self._after(parent).get(key)

    def insert(self, parent: PrefixNode | None, key: Key, page: PageId) -> PrefixNode:
        """Add a page. The place must be empty, and `page` must not be in the tree."""
        node = PrefixNode(page, key, parent)
        self._after(parent)[key] = self._nodes[page] = node
        return node

    def remove(self, page: PageId) -> None:
        """Remove a page without children. Raises ValueError for a page with children, which could not be found any
        more."""
        if self._nodes[page].children:
            raise ValueError(f"page {page} has children")
        node = self._nodes.pop(page)
        del self._after(node.parent)[node.key]

    def has_children(self, page: PageId) -> bool:
        return page in self._nodes and bool(self._nodes[page].children)

    def __contains__(self, page: PageId) -> bool:
        return page in self._nodes

    def __len__(self) -> int:
        return len(self._nodes)

    def __iter__(self) -> Iterator[PrefixNode]:
        """Yield all nodes, parents before children."""
        nodes = list(self._firsts.values())
        while nodes:
            yield (node := nodes.pop())
            nodes.extend(node.children.values())

    def _after(self, parent: PrefixNode | None) -> dict[Key, PrefixNode]:
        return self._firsts if parent is None else parent.children
