"""The facade of the KV cache: all questions and changes of the scheduler and the loop go through `KVCache`."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Protocol

from aici_base.ids import SeqId, TokenId
from aici_engine.cache.ids import PageId
from aici_engine.cache.page_pool import PagePool
from aici_engine.cache.page_table import PageTable, PageTables
from aici_engine.cache.prefix_cache import Key, PrefixNode

Tokens = Sequence[TokenId]


class PageCopier(Protocol):
    def copy_page(self, source: PageId, target: PageId) -> None: ...


class KVCache:
    """The pages of all sequences. Used by the engine's thread alone.

    `num_cached` of a sequence is the number of tokens with valid keys and values. Pages may be reserved beyond
    `num_cached`; their contents are garbage there. With `prefix_cache`, a complete page is found by its tokens and all
    tokens before. A page that no sequence holds is found too, until the room is needed.
    """

    def __init__(self, *, num_pages: int, page_size: int, copier: PageCopier, prefix_cache: bool = True) -> None:
        self.page_size = page_size
        self.num_pages = num_pages
        self._pool = PagePool(num_pages)
        self._tasks = PageTables()
        self._copier = copier
        self._prefix_cache = prefix_cache

    @property
    def num_free_pages(self) -> int:
        """Pages that no sequence holds."""
        return self._pool.num_free

    @property
    def usage(self) -> float:
        """The fraction of pages that sequences hold, 0 to 1."""
        return 1.0 - self._pool.num_free / self.num_pages

    def num_pages_for(self, num_tokens: int) -> int:
        return -(-num_tokens // self.page_size)

    def holds(self, seq_id: SeqId) -> bool:
        return seq_id in self._tasks

    def num_cached(self, seq_id: SeqId) -> int:
        return self._tasks[seq_id].num_cached

    def page_table(self, seq_id: SeqId) -> list[PageId]:
        """Return the pages of a sequence, in order. The cache owns the list: read only, and until the next change."""
        return self._tasks[seq_id].pages

    def add(self, seq_id: SeqId, salt: str | None = None) -> None:
        """Add an empty sequence. The sequence shares the pages of sequences with the same `salt`."""
        self._tasks.add(seq_id, PageTable(salt))

    # Sharing computed pages.

    def extend(self, seq_id: SeqId, tokens: Tokens, limit: int) -> int:
        """Take over cached pages of the next tokens, up to `limit` tokens in all. Return the new `num_cached`."""
        task = self._tasks[seq_id]
        for node in self._known(task, tokens, limit):
            self._pool.share([node.page])
            # The sequence may have computed a part of this page in a page of its own.
            self._pool.release(task.pages[len(task.path) :])
            task.pages[len(task.path) :] = [node.page]
            task.path.append(node)
            task.num_cached = len(task.path) * self.page_size
        return task.num_cached

    def next_page(self, seq_id: SeqId, tokens: Tokens, limit: int) -> tuple[PrefixNode | None, Key] | None:
        """Return the parent and the key of the next page to complete; `None` if the page ends beyond `limit` tokens.

        The cache does not have the page yet.
        """
        task = self._tasks[seq_id]
        if not self._prefix_cache or (len(task.path) + 1) * self.page_size > limit:
            return None
        return task.path[-1] if task.path else None, self._key(task, tokens, len(task.path))

    def num_needed(self, tokens: Tokens, limit: int, salt: str | None) -> int:
        """Return how many free pages a new sequence of these tokens takes, if the first `limit` tokens may be
        shared."""
        held = sum(not self._pool.is_idle(node.page) for node in self._known(PageTable(salt), tokens, limit))
        return self.num_pages_for(len(tokens)) - held

    def _known(self, task: PageTable, tokens: Tokens, limit: int) -> Iterator[PrefixNode]:
        """Yield the cached pages of the next tokens. The caller may append to the path of `task` meanwhile."""
        node = task.path[-1] if task.path else None
        for index in range(len(task.path), limit // self.page_size if self._prefix_cache else 0):
            node = self._pool.find(node, self._key(task, tokens, index))
            if node is None:
                return
            yield node

    def _key(self, task: PageTable, tokens: Tokens, index: int) -> Key:
        page = tuple(tokens[index * self.page_size : (index + 1) * self.page_size])
        return page if index else (task.salt, *page)

    # Room for tokens to compute.

    def num_missing(self, seq_id: SeqId, num_tokens: int) -> int:
        """Return how many free pages `reserve` would take."""
        num_new, copied = self._missing(self._tasks[seq_id], num_tokens)
        return num_new + len(copied)

    def reserve(self, seq_id: SeqId, num_tokens: int) -> bool:
        """Make tokens `num_cached` to `num_tokens - 1` writable, in pages of the sequence's own. Copy shared pages
        first.

        Return False, and change nothing, if not enough pages are free.
        """
        task = self._tasks[seq_id]
        num_new, copied = self._missing(task, num_tokens)
        if num_new + len(copied) > self._pool.num_free:
            return False
        for i in copied:
            [copy] = self._pool.take(1)
            self._copier.copy_page(task.pages[i], copy)
            self._pool.release([task.pages[i]])
            task.pages[i] = copy
        for page in task.pages[task.num_cached // self.page_size :]:
            self._pool.forget(page)
        if num_new:
            task.pages.extend(self._pool.take(num_new))
        return True

    def _missing(self, task: PageTable, num_tokens: int) -> tuple[int, list[int]]:
        """Return the number of new pages, and the indices of shared pages in the page table that would be written."""
        num_pages = self.num_pages_for(num_tokens)
        written = range(task.num_cached // self.page_size, min(num_pages, len(task.pages)))
        return max(0, num_pages - len(task.pages)), [i for i in written if self._pool.is_shared(task.pages[i])]

    def advance(self, seq_id: SeqId, tokens: Tokens, num_tokens: int) -> None:
        """The keys and values of the first `num_tokens` tokens are written. Enter complete pages into the prefix cache.

        Raises ValueError if the sequence has no pages for so many tokens.
        """
        task = self._tasks[seq_id]
        if num_tokens > len(task.pages) * self.page_size:
            raise ValueError(f"sequence {seq_id} has no pages for {num_tokens} tokens")
        task.num_cached = num_tokens
        for index in range(len(task.path), num_tokens // self.page_size if self._prefix_cache else 0):
            parent = task.path[-1] if task.path else None
            node = self._pool.enter(parent, self._key(task, tokens, index), task.pages[index])
            task.pages[index] = node.page
            task.path.append(node)

    # Giving pages back.

    def truncate(self, seq_id: SeqId, num_tokens: int) -> None:
        """Keep at most the first `num_tokens` tokens, and release the pages beyond."""
        task = self._tasks[seq_id]
        task.num_cached = min(task.num_cached, num_tokens)
        del task.path[task.num_cached // self.page_size :]
        keep = self.num_pages_for(task.num_cached)
        self._pool.release(task.pages[keep:])
        del task.pages[keep:]

    def fork(self, parent: SeqId, child: SeqId) -> None:
        """Add `child` with all cached tokens of `parent`, in the same pages, the partly filled page included."""
        task = self._tasks[parent]
        pages = task.pages[: self.num_pages_for(task.num_cached)]
        self._tasks.add(child, PageTable(task.salt, pages, list(task.path), task.num_cached))
        self._pool.share(pages)

    def free(self, seq_id: SeqId) -> None:
        """Forget the sequence and release its pages. An unknown sequence is fine: a request may end before
        admission."""
        if seq_id in self._tasks:
            self._pool.release(self._tasks.remove(seq_id).pages)

    def check_integrity(self) -> None:
        """Raise AssertionError unless the books balance. For tests and after failures."""
        self._pool.check_integrity(Counter(page for task in self._tasks for page in task.pages))
        for task in self._tasks:
            if task.num_cached > len(task.pages) * self.page_size:
                raise AssertionError(f"{task.num_cached} tokens cached in {len(task.pages)} pages")
            if len(task.path) != (task.num_cached // self.page_size if self._prefix_cache else 0):
                raise AssertionError(f"{len(task.path)} pages can be found of {task.num_cached} tokens")
            for index, node in enumerate(task.path):
                parent = task.path[index - 1] if index else None
                if node.page != task.pages[index] or node.parent is not parent or not self._pool.finds(node):
                    raise AssertionError(f"page {node.page} is not where the prefix cache has it")
