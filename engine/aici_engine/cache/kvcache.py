"""The facade of the KV cache: all questions and changes of the scheduler and the loop go through `KVCache`."""

from collections import Counter
from collections.abc import Iterator, Sequence

from aici_base.ids import SeqId, TokenId
from aici_engine.cache.ids import PageId
from aici_engine.cache.page_pool import PagePool
from aici_engine.cache.page_table import PageTable, PageTables
from aici_engine.cache.prefix_cache import Key, PrefixNode

Tokens = Sequence[TokenId]


class KVCache:
    """The pages of all sequences. Used by the engine's thread alone.

    `num_cached` of a sequence is the number of tokens with valid keys and values. Pages may be reserved beyond
    `num_cached`; their contents are garbage there. With `prefix_cache`, a complete page is found by its tokens and all
    tokens before. A page that no sequence holds is found too, until the room is needed.

    The cache touches no tensor. The next step makes the copies of `take_copies` before the step writes anything.
    """

    def __init__(self, *, num_pages: int, page_size: int, prefix_cache: bool = True) -> None:
        self.page_size = page_size
        self.num_pages = num_pages
        self._pool = PagePool(num_pages)
        self._tables = PageTables()
        self._prefix_cache = prefix_cache
        self._copies: list[tuple[PageId, PageId]] = []
        self._forgotten: list[SeqId] = []

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
        return seq_id in self._tables

    def num_cached(self, seq_id: SeqId) -> int:
        return self._tables[seq_id].num_cached

    def page_table(self, seq_id: SeqId) -> list[PageId]:
        """Return the pages of a sequence, in order. The cache owns the list: read only, and until the next change."""
        return self._tables[seq_id].pages

    def add(self, seq_id: SeqId, salt: str | None = None) -> None:
        """Add an empty sequence. The sequence shares the pages of sequences with the same `salt`."""
        self._tables.add(seq_id, PageTable(salt))

    # Sharing computed pages.

    def extend(self, seq_id: SeqId, tokens: Tokens, limit: int) -> int:
        """Take over cached pages of the next tokens, up to `limit` tokens in all. Return the new `num_cached`."""
        table = self._tables[seq_id]
        for node in self._known(table, tokens, limit):
            self._pool.share([node.page])
            # The sequence may have computed a part of this page in a page of its own.
            self._pool.release(table.pages[len(table.path) :])
            table.pages[len(table.path) :] = [node.page]
            table.path.append(node)
            table.num_cached = len(table.path) * self.page_size
        return table.num_cached

    def next_page(self, seq_id: SeqId, tokens: Tokens, limit: int) -> tuple[PrefixNode | None, Key] | None:
        """Return the parent and the key of the next page to complete; `None` if the page ends beyond `limit` tokens.

        The cache does not have the page yet.
        """
        table = self._tables[seq_id]
        if not self._prefix_cache or (len(table.path) + 1) * self.page_size > limit:
            return None
        return table.path[-1] if table.path else None, self._key(table, tokens, len(table.path))

    def num_needed(self, tokens: Tokens, limit: int, salt: str | None) -> int:
        """Return how many free pages a new sequence of these tokens takes, if the first `limit` tokens may be
        shared."""
        held = sum(not self._pool.is_idle(node.page) for node in self._known(PageTable(salt), tokens, limit))
        return self.num_pages_for(len(tokens)) - held

    def _known(self, table: PageTable, tokens: Tokens, limit: int) -> Iterator[PrefixNode]:
        """Yield the cached pages of the next tokens. The caller may append to the path of `table` meanwhile."""
        node = table.path[-1] if table.path else None
        for index in range(len(table.path), limit // self.page_size if self._prefix_cache else 0):
            node = self._pool.find(node, self._key(table, tokens, index))
            if node is None:
                return
            yield node

    def _key(self, table: PageTable, tokens: Tokens, index: int) -> Key:
        page = tuple(tokens[index * self.page_size : (index + 1) * self.page_size])
        return page if index else (table.salt, *page)

    # Room for tokens to compute.

    def num_missing(self, seq_id: SeqId, num_tokens: int) -> int:
        """Return how many free pages `reserve` would take."""
        num_new, copied = self._missing(self._tables[seq_id], num_tokens)
        return num_new + len(copied)

    def reserve(self, seq_id: SeqId, num_tokens: int) -> bool:
        """Make tokens `num_cached` to `num_tokens - 1` writable, in pages of the sequence's own. Copy shared pages
        first.

        Return False, and change nothing, if not enough pages are free.
        """
        table = self._tables[seq_id]
        last = len(table.pages) - 1
        if table.num_cached // self.page_size == last and num_tokens <= (last + 1) * self.page_size:
            page = table.pages[last]
            if not self._pool.is_shared(page):
                # Nearly all calls: one more token in the last page.
                self._pool.forget(page)
                return True
        num_new, copied = self._missing(table, num_tokens)
        if num_new + len(copied) > self._pool.num_free:
            return False
        for i in copied:
            [copy] = self._pool.take(1)
            self._copies.append((table.pages[i], copy))
            self._pool.release([table.pages[i]])
            table.pages[i] = copy
        for page in table.pages[table.num_cached // self.page_size :]:
            self._pool.forget(page)
        if num_new:
            table.pages.extend(self._pool.take(num_new))
        return True

    def _missing(self, table: PageTable, num_tokens: int) -> tuple[int, list[int]]:
        """Return the number of new pages, and the indices of shared pages in the page table that would be written."""
        num_pages = self.num_pages_for(num_tokens)
        written = range(table.num_cached // self.page_size, min(num_pages, len(table.pages)))
        return max(0, num_pages - len(table.pages)), [i for i in written if self._pool.is_shared(table.pages[i])]

    def advance(self, seq_id: SeqId, tokens: Tokens, num_tokens: int) -> None:
        """The keys and values of the first `num_tokens` tokens are written. Enter complete pages into the prefix cache.

        Raises ValueError if the sequence has no pages for so many tokens.
        """
        table = self._tables[seq_id]
        if num_tokens > len(table.pages) * self.page_size:
            raise ValueError(f"sequence {seq_id} has no pages for {num_tokens} tokens")
        table.num_cached = num_tokens
        for index in range(len(table.path), num_tokens // self.page_size if self._prefix_cache else 0):
            parent = table.path[-1] if table.path else None
            node = self._pool.enter(parent, self._key(table, tokens, index), table.pages[index])
            table.pages[index] = node.page
            table.path.append(node)

    # Giving pages back.

    def truncate(self, seq_id: SeqId, num_tokens: int) -> None:
        """Keep at most the first `num_tokens` tokens, and release the pages beyond these."""
        table = self._tables[seq_id]
        table.num_cached = min(table.num_cached, num_tokens)
        del table.path[table.num_cached // self.page_size :]
        keep = self.num_pages_for(num_tokens)
        self._pool.release(table.pages[keep:])
        del table.pages[keep:]

    def fork(self, parent: SeqId, child: SeqId) -> None:
        """Add `child` with all cached tokens of `parent`, in the same pages, the partly filled page included."""
        table = self._tables[parent]
        pages = table.pages[: self.num_pages_for(table.num_cached)]
        self._tables.add(child, PageTable(table.salt, pages, list(table.path), table.num_cached))
        self._pool.share(pages)

    def free(self, seq_id: SeqId) -> None:
        """Forget the sequence and release its pages. An unknown sequence is fine: a request may end before
        admission."""
        if seq_id in self._tables:
            self._pool.release(self._tables.remove(seq_id).pages)
            self._forgotten.append(seq_id)

    def clear(self) -> None:
        """The contents of all pages are lost: no page is found any more. No sequence may hold pages."""
        if len(self._tables):
            raise ValueError(f"{len(self._tables)} sequences hold pages")
        self._pool = PagePool(self.num_pages)
        self._copies.clear()

    def shrink(self) -> None:
        """Forget half of the pages that no sequence holds, those unused for longest: memory is short."""
        self._pool.evict(-(-self._pool.num_idle // 2))

    # News for the executor.

    def take_spent(self) -> list[PageId]:
        """Return the free pages that were used since the last call, in order. Nobody reads their contents any more.

        Nothing while copies are to be made: a free page may be the source of one.
        """
        return [] if self._copies else self._pool.take_spent()

    def take_copies(self) -> list[tuple[PageId, PageId]]:
        """Return the pages to copy since the last call, as (source, target), in order."""
        copies, self._copies = self._copies, []
        return copies

    def take_forgotten(self) -> list[SeqId]:
        """Return the sequences freed since the last call. A freed sequence may be back: it has a new page table."""
        forgotten, self._forgotten = self._forgotten, []
        return forgotten

    def check_integrity(self) -> None:
        """Raise AssertionError unless the books balance. For tests and after failures."""
        self._pool.check_integrity(Counter(page for table in self._tables for page in table.pages))
        for table in self._tables:
            if table.num_cached > len(table.pages) * self.page_size:
                raise AssertionError(f"{table.num_cached} tokens cached in {len(table.pages)} pages")
            if len(table.path) != (table.num_cached // self.page_size if self._prefix_cache else 0):
                raise AssertionError(f"{len(table.path)} pages can be found of {table.num_cached} tokens")
            for index, node in enumerate(table.path):
                parent = table.path[index - 1] if index else None
                if node.page != table.pages[index] or node.parent is not parent or not self._pool.finds(node):
                    raise AssertionError(f"page {node.page} is not where the prefix cache has it")
