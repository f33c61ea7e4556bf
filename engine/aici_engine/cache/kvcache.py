"""The facade: every question that the scheduler and the loop ask about pages, and every change they make."""

from collections import Counter
from typing import Protocol

from aici_engine.cache.ids import PageId
from aici_engine.cache.pages import PagePool
from aici_engine.cache.table import Task, TaskTable
from aici_runtime.ids import SeqId


class PageCopier(Protocol):
    def copy_page(self, source: PageId, target: PageId) -> None: ...


class KVCache:
    """Pages of all sequences. Used by the engine's thread alone.

    `num_cached` of a sequence counts the tokens whose keys and values are valid; pages may reach further (they were
    reserved), and what lies behind `num_cached` is garbage.
    """

    def __init__(self, *, num_pages: int, page_size: int, copier: PageCopier) -> None:
        self.page_size = page_size
        self.num_pages = num_pages
        self._pool = PagePool(num_pages)
        self._tasks = TaskTable()
        self._copier = copier

    @property
    def num_free_pages(self) -> int:
        return self._pool.num_free

    @property
    def usage(self) -> float:
        """The fraction of pages in use, 0 to 1."""
        return 1.0 - self._pool.num_free / self.num_pages

    def num_pages_for(self, num_tokens: int) -> int:
        return -(-num_tokens // self.page_size)

    def holds(self, seq_id: SeqId) -> bool:
        return seq_id in self._tasks

    def num_cached(self, seq_id: SeqId) -> int:
        return self._tasks[seq_id].num_cached

    def page_table(self, seq_id: SeqId) -> list[PageId]:
        """Owned by the cache: read it, and only until the next change."""
        return self._tasks[seq_id].pages

    def add(self, seq_id: SeqId) -> None:
        """An empty sequence."""
        self._tasks.add(seq_id, Task())

    def num_missing(self, seq_id: SeqId, num_tokens: int) -> int:
        """How many pages `reserve` would take."""
        return self._num_new(seq_id, num_tokens) + len(self._shared(seq_id, num_tokens))

    def reserve(self, seq_id: SeqId, num_tokens: int) -> bool:
        """Make tokens `num_cached` to `num_tokens - 1` writable: pages of its own, or nothing changes and False.

        Shared pages that will be written are copied first.
        """
        if self.num_missing(seq_id, num_tokens) > self._pool.num_free:
            return False
        pages = self._tasks[seq_id].pages
        for i in self._shared(seq_id, num_tokens):
            [copy] = self._pool.take(1)
            self._copier.copy_page(pages[i], copy)
            self._pool.release([pages[i]])
            pages[i] = copy
        pages.extend(self._pool.take(self._num_new(seq_id, num_tokens)))
        return True

    def _num_new(self, seq_id: SeqId, num_tokens: int) -> int:
        return max(0, self.num_pages_for(num_tokens) - len(self._tasks[seq_id].pages))

    def _shared(self, seq_id: SeqId, num_tokens: int) -> list[int]:
        """Where in its page table the shared pages are that would be written."""
        task = self._tasks[seq_id]
        last = min(self.num_pages_for(num_tokens), len(task.pages))
        return [i for i in range(task.num_cached // self.page_size, last) if self._pool.is_shared(task.pages[i])]

    def advance(self, seq_id: SeqId, num_tokens: int) -> None:
        """The keys and values of the first `num_tokens` tokens are written now."""
        task = self._tasks[seq_id]
        if num_tokens > len(task.pages) * self.page_size:
            raise ValueError(f"sequence {seq_id} has no pages for {num_tokens} tokens")
        task.num_cached = num_tokens

    def truncate(self, seq_id: SeqId, num_tokens: int) -> None:
        """Keep at most the first `num_tokens` tokens, and no page beyond them."""
        task = self._tasks[seq_id]
        task.num_cached = min(task.num_cached, num_tokens)
        keep = self.num_pages_for(task.num_cached)
        self._pool.release(task.pages[keep:])
        del task.pages[keep:]

    def fork(self, parent: SeqId, child: SeqId) -> None:
        """`child` starts with all of `parent`'s cached tokens and shares their pages, the partly filled one too."""
        task = self._tasks[parent]
        pages = task.pages[: self.num_pages_for(task.num_cached)]
        self._tasks.add(child, Task(pages, task.num_cached))
        self._pool.share(pages)

    def free(self, seq_id: SeqId) -> None:
        """Forget the sequence. It need not be there: a request may end before it had pages."""
        if seq_id in self._tasks:
            self._pool.release(self._tasks.remove(seq_id).pages)

    def check_integrity(self) -> None:
        """AssertionError unless every page is held as often as page tables name it. For tests and after failures."""
        held = Counter(page for task in self._tasks for page in task.pages)
        for page in range(self.num_pages):
            count = self._pool.count(PageId(page))
            if count != held[PageId(page)]:
                raise AssertionError(f"page {page} is counted {count} times and held {held[PageId(page)]} times")
        if self._pool.num_free + len(held) != self.num_pages:
            raise AssertionError(f"{self._pool.num_free} free and {len(held)} held pages of {self.num_pages}")
        for task in self._tasks:
            if task.num_cached > len(task.pages) * self.page_size:
                raise AssertionError(f"{task.num_cached} tokens cached in {len(task.pages)} pages")
