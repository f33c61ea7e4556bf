"""Which pages are free, and how many page tables hold each of the others. Knows nothing of tensors or tokens."""

from aici_engine.cache.ids import PageId


class Allocator:
    """Reference counts over page ids 0 to num_pages - 1. A page is free exactly while its count is zero."""

    def __init__(self, num_pages: int) -> None:
        self.num_pages = num_pages
        self._counts = [0] * num_pages
        # A stack: pages that were used last are taken first, so untouched memory stays untouched.
        self._free = [PageId(page) for page in range(num_pages - 1, -1, -1)]

    @property
    def num_free(self) -> int:
        return len(self._free)

    def take(self) -> PageId:
        """A page with count 1 and contents unspecified. The caller has checked `num_free`; IndexError otherwise."""
        page = self._free.pop()
        self._counts[page] = 1
        return page

    def share(self, page: PageId) -> None:
        """Count one more holder of a page that is held."""
        if self._counts[page] == 0:
            raise ValueError(f"page {page} is free and cannot be shared")
        self._counts[page] += 1

    def release(self, page: PageId) -> None:
        """Count one holder less; the last one frees the page."""
        if self._counts[page] == 0:
            raise ValueError(f"page {page} is free already")
        self._counts[page] -= 1
        if self._counts[page] == 0:
            self._free.append(page)

    def count(self, page: PageId) -> int:
        return self._counts[page]


class PagePool:
    """Hands out runs of pages, all or nothing. Prefix reuse will live here: today nothing outlives its release."""

    def __init__(self, num_pages: int) -> None:
        self._allocator = Allocator(num_pages)
        self.num_pages = num_pages

    @property
    def num_free(self) -> int:
        return self._allocator.num_free

    def take(self, num_pages: int) -> list[PageId]:
        """Exactly `num_pages` pages, or ValueError if there are not so many."""
        if num_pages > self.num_free:
            raise ValueError(f"{num_pages} pages wanted, {self.num_free} free")
        return [self._allocator.take() for _ in range(num_pages)]

    def share(self, pages: list[PageId]) -> None:
        for page in pages:
            self._allocator.share(page)

    def release(self, pages: list[PageId]) -> None:
        for page in pages:
            self._allocator.release(page)

    def is_shared(self, page: PageId) -> bool:
        return self._allocator.count(page) > 1

    def count(self, page: PageId) -> int:
        return self._allocator.count(page)
