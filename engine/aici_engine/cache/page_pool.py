"""Which pages are held, how often, and which can be had. Knows nothing of tensors."""

from collections import Counter, OrderedDict
from collections.abc import Sequence

from aici_engine.cache.ids import PageId
from aici_engine.cache.prefix_cache import Key, PrefixCache, PrefixNode


class Allocator:
    """Reference counts over page ids 0 to num_pages - 1. A page whose count is zero is free, or idle: its contents are
    kept until somebody needs the page."""

    def __init__(self, num_pages: int) -> None:
        self.num_pages = num_pages
        self._counts = [0] * num_pages
        # A stack: pages that were used last are taken first, so untouched memory stays untouched.
        self._free = [PageId(page) for page in range(num_pages - 1, -1, -1)]
        self.idle: OrderedDict[PageId, None] = OrderedDict()
        """First the one that has been idle longest."""

    @property
    def num_free(self) -> int:
        return len(self._free)

    def take(self) -> PageId:
        """A page with count 1 and contents unspecified. The caller has checked `num_free`; IndexError otherwise."""
        page = self._free.pop()
        self._counts[page] = 1
        return page

    def share(self, page: PageId) -> None:
        """Count one more holder of a page that is held or idle."""
        if self._counts[page] == 0 and page not in self.idle:
            raise ValueError(f"page {page} is free and cannot be shared")
        self.idle.pop(page, None)
        self._counts[page] += 1

    def release(self, page: PageId, *, keep: bool = False) -> None:
        """Count one holder less; after the last one the page is idle, with `keep`, or free."""
        if self._counts[page] == 0:
            raise ValueError(f"page {page} is free already")
        self._counts[page] -= 1
        if self._counts[page] == 0:
            if keep:
                self.idle[page] = None
            else:
                self._free.append(page)

    def evict(self) -> PageId:
        """Free the page that has been idle longest. KeyError if none is idle."""
        page, _ = self.idle.popitem(last=False)
        self._free.append(page)
        return page

    def count(self, page: PageId) -> int:
        return self._counts[page]


class PagePool:
    """Hands out pages, and knows by their tokens those that are complete, for as long as nobody needs the room.

    Who holds a page of the prefix cache holds all before it, and lets go of the last first: so the page that has been
    idle longest never has one after it.
    """

    def __init__(self, num_pages: int) -> None:
        self._allocator = Allocator(num_pages)
        self._prefixes = PrefixCache()
        self.num_pages = num_pages

    @property
    def num_free(self) -> int:
        """How many can be taken."""
        return self._allocator.num_free + len(self._allocator.idle)

    def take(self, num_pages: int) -> list[PageId]:
        """Exactly `num_pages` pages, or ValueError if there are not so many."""
        if num_pages > self.num_free:
            raise ValueError(f"{num_pages} pages wanted, {self.num_free} free")
        for _ in range(num_pages - self._allocator.num_free):
            self._prefixes.remove(self._allocator.evict())
        return [self._allocator.take() for _ in range(num_pages)]

    def share(self, pages: Sequence[PageId]) -> None:
        for page in pages:
            self._allocator.share(page)

    def release(self, pages: Sequence[PageId]) -> None:
        """In the order of their tokens."""
        for page in reversed(pages):
            self._allocator.release(page, keep=page in self._prefixes)

    def find(self, parent: PrefixNode | None, key: Key) -> PrefixNode | None:
        return self._prefixes.find(parent, key)

    def enter(self, parent: PrefixNode | None, key: Key, page: PageId) -> PrefixNode:
        """`page`, held by the caller alone, is complete. The node may be another's that holds the same: the caller
        holds that one's page then, and not its own any more."""
        node = self._prefixes.find(parent, key)
        if node is None:
            return self._prefixes.insert(parent, key, page)
        self._allocator.share(node.page)
        self._allocator.release(page)
        return node

    def is_idle(self, page: PageId) -> bool:
        return page in self._allocator.idle

    def is_shared(self, page: PageId) -> bool:
        """Others rely on what a held page contains: it must not be written."""
        return self._allocator.count(page) > 1 or self._prefixes.has_children(page)

    def finds(self, node: PrefixNode) -> bool:
        return self._prefixes.find(node.parent, node.key) is node

    def forget(self, page: PageId) -> None:
        """What it contains will change. It is not shared."""
        if page in self._prefixes:
            self._prefixes.remove(page)

    def check_integrity(self, held: Counter[PageId]) -> None:
        """AssertionError unless pages are counted as often as they are `held`, and each of the others is free or, if
        it can be found, idle, those after it before it."""
        pages = [PageId(page) for page in range(self.num_pages)]
        for page in pages:
            if (count := self._allocator.count(page)) != held[page]:
                raise AssertionError(f"page {page} is counted {count} times and held {held[page]} times")
        since = {page: place for place, page in enumerate(self._allocator.idle)}
        if set(since) != {page for page in pages if page in self._prefixes and not held[page]}:
            raise AssertionError("the idle pages are not those that can be found and are not held")
        if self.num_free + len(held) != self.num_pages:
            raise AssertionError(f"{self.num_free} free and {len(held)} held pages of {self.num_pages}")
        reached = {node.page: node for node in self._prefixes}
        if len(reached) != len(self._prefixes):
            raise AssertionError(f"{len(reached)} of the {len(self._prefixes)} pages with known tokens can be found")
        for page, node in reached.items():
            for child in node.children.values():
                if child.parent is not node or since.get(child.page, self.num_pages) > since.get(page, self.num_pages):
                    raise AssertionError(f"page {child.page} would outlive page {page}, which is before it")
