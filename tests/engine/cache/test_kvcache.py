"""The cache against a model of it that has no pages: each sequence is a list of what was written."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from aici_engine.cache.ids import PageId
from aici_engine.cache.kvcache import KVCache
from aici_engine.cache.pages import Allocator, PagePool
from aici_runtime.ids import SeqId

PAGE_SIZE, NUM_PAGES = 4, 12


class Memory:
    """A page is a list of what was written; contents survive release, as they do in the tensors."""

    def __init__(self) -> None:
        self.pages = [[-1] * PAGE_SIZE for _ in range(NUM_PAGES)]

    def copy_page(self, source: PageId, target: PageId) -> None:
        self.pages[target] = list(self.pages[source])


class CacheMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.memory = Memory()
        self.cache = KVCache(num_pages=NUM_PAGES, page_size=PAGE_SIZE, copier=self.memory)
        self.written: dict[SeqId, list[int]] = {}
        self.next_id = 1
        self.next_value = 0

    def new_id(self) -> SeqId:
        self.next_id += 1
        return SeqId(self.next_id)

    def pick(self, data: st.DataObject) -> SeqId:
        return data.draw(st.sampled_from(sorted(self.written)))

    @rule()
    def add(self) -> None:
        seq_id = self.new_id()
        self.cache.add(seq_id)
        self.written[seq_id] = []

    @precondition(lambda self: self.written)
    @rule(data=st.data(), num_tokens=st.integers(1, 20))
    def append(self, data: st.DataObject, num_tokens: int) -> None:
        seq_id = self.pick(data)
        tokens = self.written[seq_id]
        free = self.cache.num_free_pages
        end = len(tokens) + num_tokens
        if not self.cache.reserve(seq_id, end):
            assert self.cache.num_free_pages == free
            # At worst every page that is written to must be new.
            assert free <= self.cache.num_pages_for(end) - len(tokens) // PAGE_SIZE
            return
        table = self.cache.page_table(seq_id)
        for at in range(len(tokens), end):
            self.next_value += 1
            self.memory.pages[table[at // PAGE_SIZE]][at % PAGE_SIZE] = self.next_value
            tokens.append(self.next_value)
        self.cache.advance(seq_id, end)

    @precondition(lambda self: self.written)
    @rule(data=st.data(), keep=st.integers(0, 30))
    def truncate(self, data: st.DataObject, keep: int) -> None:
        seq_id = self.pick(data)
        self.cache.truncate(seq_id, keep)
        del self.written[seq_id][keep:]

    @precondition(lambda self: self.written)
    @rule(data=st.data())
    def fork(self, data: st.DataObject) -> None:
        parent, child = self.pick(data), self.new_id()
        free = self.cache.num_free_pages
        self.cache.fork(parent, child)
        self.written[child] = list(self.written[parent])
        assert self.cache.num_free_pages == free

    @precondition(lambda self: self.written)
    @rule(data=st.data())
    def free(self, data: st.DataObject) -> None:
        seq_id = self.pick(data)
        self.cache.free(seq_id)
        self.cache.free(seq_id)
        del self.written[seq_id]

    @invariant()
    def books_balance(self) -> None:
        self.cache.check_integrity()
        if not self.written:
            assert self.cache.usage == 0.0

    @invariant()
    def everyone_reads_what_they_wrote(self) -> None:
        for seq_id, tokens in self.written.items():
            table = self.cache.page_table(seq_id)
            assert [self.memory.pages[table[i // PAGE_SIZE]][i % PAGE_SIZE] for i in range(len(tokens))] == tokens
            assert self.cache.num_cached(seq_id) == len(tokens)


TestCache = CacheMachine.TestCase
TestCache.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def test_a_page_is_not_freed_twice_nor_shared_when_free() -> None:
    allocator = Allocator(2)
    page = allocator.take()
    allocator.share(page)
    allocator.release(page)
    allocator.release(page)
    with pytest.raises(ValueError, match="free already"):
        allocator.release(page)
    with pytest.raises(ValueError, match="cannot be shared"):
        allocator.share(page)


def test_the_pool_gives_all_or_nothing() -> None:
    pool = PagePool(3)
    pool.take(2)
    with pytest.raises(ValueError, match="2 pages wanted, 1 free"):
        pool.take(2)
    assert pool.num_free == 1


def test_integrity_is_violated_when_books_are_cooked() -> None:
    cache = KVCache(num_pages=4, page_size=4, copier=Memory())
    cache.add(SeqId(1))
    cache.reserve(SeqId(1), 5)
    cache.page_table(SeqId(1)).pop()
    with pytest.raises(AssertionError, match="counted 1 times and held 0"):
        cache.check_integrity()
