"""The states of pages: held, idle or free. Knows nothing of tensors."""

from collections import Counter, OrderedDict
from collections.abc import Sequence

from aici_engine.cache.ids import PageId
from aici_engine.cache.prefix_cache import Key, PrefixCache, PrefixNode


class Allocator:
    """Reference counts of pages 0 to `num_pages - 1`. A page with count 0 is free, or idle.

    The contents of an idle page stay valid until the page is needed.
    """

    def __init__(self, num_pages: int) -> None:
        self.num_pages = num_pages
        self._counts = [0] * num_pages
        # A stack: the page released last is taken first, so memory never used stays unused.
        self._free = [PageId(page) for page in range(num_pages - 1, -1, -1)]
        self._written: set[PageId] = set()
        self.idle: OrderedDict[PageId, None] = OrderedDict()
        """Idle pages, longest idle first."""

    @property
    def num_free(self) -> int:
        return len(self._free)

    def take(self) -> PageId:
        """Return a page with count 1 and unspecified contents. Raises IndexError if no page is free."""
        page = self._free.pop()
        self._written.add(page)
        self._counts[page] = 1
        return page

    def share(self, page: PageId) -> None:
        """Count a further holder of a held or idle page. Raises ValueError for a free page."""
        if self._counts[page] == 0 and page not in self.idle:
            raise ValueError(f"page {page} is free and cannot be shared")
        self.idle.pop(page, None)
        self._counts[page] += 1

    def release(self, page: PageId, *, keep: bool = False) -> None:
        """Count a holder less. After the last holder the page is idle if `keep`, else free.

        Raises ValueError for a page without a holder.
        """
        if self._counts[page] == 0:
            raise ValueError(f"page {page} is free already")
        self._counts[page] -= 1
        if self._counts[page] == 0:
            if keep:
                self.idle[page] = None
            else:
                self._free.append(page)

    def evict(self) -> PageId:
        """Free the page that was idle longest. Raises KeyError if no page is idle."""
        page, _ = self.idle.popitem(last=False)
        self._free.append(page)
        return page

    def count(self, page: PageId) -> int:
        return self._counts[page]

    def take_spent(self) -> list[PageId]:
        """Return the free pages that were taken since the last call, in order: their memory is not needed."""
        spent = sorted(page for page in self._written if not self._counts[page] and page not in self.idle)
        self._written.difference_update(spent)
        return spent


class PagePool:
    """Hands out pages, and finds complete pages by their tokens, held pages as well as idle pages.

    Invariant: a sequence that holds a page of the prefix cache holds all pages before, and releases the last page
    first. So the page that was idle longest never has a page after it.
    """

    def __init__(self, num_pages: int) -> None:
        self._allocator = Allocator(num_pages)
        self._prefixes = PrefixCache()
        self.num_pages = num_pages

    @property
    def num_free(self) -> int:
        """Pages that `take` can return: free and idle pages."""
        return self._allocator.num_free + len(self._allocator.idle)

    def take(self, num_pages: int) -> list[PageId]:
        """Return exactly `num_pages` pages. If too few are free, evict idle pages, longest idle first.

        Raises ValueError if fewer pages are free or idle.
        """
        if num_pages > self.num_free:
            raise ValueError(f"{num_pages} pages wanted, {self.num_free} free")
        self.evict(num_pages - self._allocator.num_free)
        return [self._allocator.take() for _ in range(num_pages)]

    def evict(self, num_pages: int) -> None:
        """Forget up to `num_pages` idle pages, longest idle first. The pages are free afterwards."""
        for _ in range(min(num_pages, len(self._allocator.idle))):
            self._prefixes.remove(self._allocator.evict())

    @property
    def num_idle(self) -> int:
        return len(self._allocator.idle)

    def take_spent(self) -> list[PageId]:
        """Return the free pages whose memory is not needed, and which were not returned before."""
        return self._allocator.take_spent()

    def share(self, pages: Sequence[PageId]) -> None:
        for page in pages:
            self._allocator.share(page)

    def release(self, pages: Sequence[PageId]) -> None:
        """Release the pages of a sequence, given in the order of their tokens."""
        for page in reversed(pages):
            self._allocator.release(page, keep=page in self._prefixes)

    def find(self, parent: PrefixNode | None, key: Key) -> PrefixNode | None:
        return self._prefixes.find(parent, key)

    def enter(self, parent: PrefixNode | None, key: Key, page: PageId) -> PrefixNode:
        """Enter `page`, complete and held by the caller alone, and return its node.

        If a page with the same tokens is known, return the node of the known page. The caller then holds the known page
        in place of `page`, which is released.
        """
        node = self._prefixes.find(parent, key)
        if node is None:
            return self._prefixes.insert(parent, key, page)
        self._allocator.share(node.page)
        self._allocator.release(page)
        return node

    def is_idle(self, page: PageId) -> bool:
        return page in self._allocator.idle

    def is_shared(self, page: PageId) -> bool:
        """Return whether other sequences rely on the contents of a held page, so the page must not be written."""
        return self._allocator.count(page) > 1 or self._prefixes.has_children(page)

    def finds(self, node: PrefixNode) -> bool:
        return self._prefixes.find(node.parent, node.key) is node

    def forget(self, page: PageId) -> None:
        """The contents of `page`, which is not shared, will change: the page is not found any more."""
        if page in self._prefixes:
            self._prefixes.remove(page)

    def check_integrity(self, held: Counter[PageId]) -> None:
        """Raise AssertionError unless the counts agree with `held`, and all other pages are free or idle.

        An idle page is in the prefix cache, and its children became idle earlier than the page.
        """
        pages = [PageId(page) for page in range(self.num_pages)]
        for page in pages:
            if (count := self._allocator.count(page)) != held[page]:
                raise AssertionError(f"page {page} is counted {count} times and held {held[page]} times")
        since = {page: place for place, page in enumerate(self._allocator.idle)}
        if set(since) != {page for page in pages if page in self._prefixes and not held[page]}:
            raise AssertionError("the idle pages differ from the known pages without a holder")
        if self.num_free + len(held) != self.num_pages:
            raise AssertionError(f"{self.num_free} free and {len(held)} held pages of {self.num_pages}")
        reached = {node.page: node for node in self._prefixes}
        if len(reached) != len(self._prefixes):
            raise AssertionError(f"{len(reached)} of the {len(self._prefixes)} pages with known tokens can be found")
        for page, node in reached.items():
            for child in node.children.values():
                if child.parent is not node or since.get(child.page, self.num_pages) > since.get(page, self.num_pages):
                    raise AssertionError(f"page {child.page} would be evicted after its parent, page {page}")
