"""The cache against a model without pages, in which a sequence is a list of tokens, partly computed."""

import itertools

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from aici_base.ids import SeqId, TokenId
from aici_engine.cache.ids import PageId
from aici_engine.cache.kvcache import KVCache
from aici_engine.cache.page_pool import Allocator, PagePool

PAGE_SIZE, NUM_PAGES = 4, 12
TOKENS = st.lists(st.integers(0, 1).map(TokenId), min_size=1, max_size=14)


class Memory:
    """A page is a list of written values. Contents survive release, as in the tensors."""

    def __init__(self) -> None:
        self.pages: list[list[object]] = [[None] * PAGE_SIZE for _ in range(NUM_PAGES)]

    def copy_page(self, source: PageId, target: PageId) -> None:
        self.pages[target] = list(self.pages[source])


class CacheMachine(RuleBasedStateMachine):
    """The value written for a token is its salt and all tokens up to the token. A shared page must agree in all
    values."""

    prefix_cache = True

    def __init__(self) -> None:
        super().__init__()
        self.memory = Memory()
        self.cache = KVCache(num_pages=NUM_PAGES, page_size=PAGE_SIZE, prefix_cache=self.prefix_cache)
        self.tokens: dict[SeqId, list[TokenId]] = {}
        self.computed: dict[SeqId, int] = {}
        self.salts: dict[SeqId, str | None] = {}
        self.ids = itertools.count(1)

    def pick(self, data: st.DataObject) -> SeqId:
        return data.draw(st.sampled_from(sorted(self.tokens)))

    def begin(self, seq_id: SeqId, tokens: list[TokenId], salt: str | None, limit: int) -> None:
        self.cache.add(seq_id, salt)
        self.tokens[seq_id], self.salts[seq_id] = tokens, salt
        self.computed[seq_id] = self.cache.extend(seq_id, tokens, limit)
        assert self.computed[seq_id] <= limit

    @rule(tokens=TOKENS, salt=st.sampled_from([None, "a"]), part=st.floats(0, 1))
    def add(self, tokens: list[TokenId], salt: str | None, part: float) -> None:
        """Admit a sequence, and compute all its tokens if the cache has room."""
        seq_id, limit = SeqId(next(self.ids)), int(part * len(tokens))
        free, need = self.cache.num_free_pages, self.cache.num_needed(tokens, limit, salt)
        self.begin(seq_id, tokens, salt, limit)
        missing = self.cache.num_missing(seq_id, len(tokens))
        if self.compute(seq_id, len(tokens)):
            # A page computed by the sequence may be known: the sequence then holds the known page only.
            assert free - self.cache.num_free_pages <= need
        assert need <= free or missing > self.cache.num_free_pages

    def compute(self, seq_id: SeqId, end: int) -> bool:
        """Compute tokens up to `end`. Return False without room."""
        tokens, start = self.tokens[seq_id], self.computed[seq_id]
        free, missing = self.cache.num_free_pages, self.cache.num_missing(seq_id, end)
        if not self.cache.reserve(seq_id, end):
            assert self.cache.num_free_pages == free < missing
            # At worst every written page must be new.
            assert missing <= self.cache.num_pages_for(end) - start // PAGE_SIZE
            return False
        # A page copied away from preempted sequences has no holder afterwards, so a page may become free.
        assert free - missing <= self.cache.num_free_pages <= free - missing + 1
        for copy in self.cache.take_copies():
            self.memory.copy_page(*copy)
        table = self.cache.page_table(seq_id)
        for at in range(start, end):
            value = (self.salts[seq_id], tuple(tokens[: at + 1]))
            self.memory.pages[table[at // PAGE_SIZE]][at % PAGE_SIZE] = value
        self.cache.advance(seq_id, tokens, end)
        self.computed[seq_id] = end
        return True

    @precondition(lambda self: self.tokens)
    @rule(data=st.data(), tokens=TOKENS, num_computed=st.integers(0, 14))
    def append(self, data: st.DataObject, tokens: list[TokenId], num_computed: int) -> None:
        seq_id = self.pick(data)
        self.tokens[seq_id] += tokens
        self.compute(seq_id, min(len(self.tokens[seq_id]), self.computed[seq_id] + num_computed))

    @precondition(lambda self: self.tokens)
    @rule(data=st.data())
    def extend(self, data: st.DataObject) -> None:
        """Take over pages computed meanwhile. Afterwards the next page is unknown to the cache."""
        seq_id = self.pick(data)
        tokens, limit = self.tokens[seq_id], len(self.tokens[seq_id]) - 1
        before, self.computed[seq_id] = self.computed[seq_id], self.cache.extend(seq_id, tokens, limit)
        assert self.computed[seq_id] == before or before < self.computed[seq_id] <= limit
        page = self.cache.next_page(seq_id, tokens, limit)
        if self.prefix_cache and page is not None:
            assert tuple(tokens[self.computed[seq_id] // PAGE_SIZE * PAGE_SIZE :][:PAGE_SIZE]) == page[1][-PAGE_SIZE:]
            assert self.cache.extend(seq_id, tokens, limit) == self.computed[seq_id]
        else:
            assert page is None

    @precondition(lambda self: self.tokens)
    @rule(data=st.data(), keep=st.integers(0, 30))
    def backtrack(self, data: st.DataObject, keep: int) -> None:
        seq_id = self.pick(data)
        self.cache.truncate(seq_id, keep)
        del self.tokens[seq_id][max(1, keep) :]
        self.computed[seq_id] = min(self.computed[seq_id], keep)

    @precondition(lambda self: self.tokens)
    @rule(data=st.data())
    def fork(self, data: st.DataObject) -> None:
        parent, child = self.pick(data), SeqId(next(self.ids))
        free = self.cache.num_free_pages
        self.cache.fork(parent, child)
        for of in (self.computed, self.salts):
            of[child] = of[parent]  # type: ignore[index]
        self.tokens[child] = list(self.tokens[parent])
        assert self.cache.num_free_pages == free

    @precondition(lambda self: self.tokens)
    @rule(data=st.data())
    def preempt(self, data: st.DataObject) -> None:
        """Free a sequence and add the sequence again: the complete pages are found."""
        seq_id = self.pick(data)
        computed = self.computed[seq_id]
        self.cache.free(seq_id)
        self.begin(seq_id, self.tokens[seq_id], self.salts[seq_id], len(self.tokens[seq_id]))
        if self.prefix_cache:
            assert self.computed[seq_id] >= computed // PAGE_SIZE * PAGE_SIZE

    @precondition(lambda self: self.tokens)
    @rule(data=st.data())
    def free(self, data: st.DataObject) -> None:
        seq_id = self.pick(data)
        self.cache.free(seq_id)
        self.cache.free(seq_id)
        for of in (self.tokens, self.computed, self.salts):
            del of[seq_id]  # type: ignore[attr-defined]

    @rule(num_pages=st.integers(1, NUM_PAGES))
    def press(self, num_pages: int) -> None:
        """Take room for a further sequence: idle pages are evicted."""
        self.cache.add(SeqId(0))
        done = self.cache.num_free_pages >= num_pages
        assert self.cache.reserve(SeqId(0), num_pages * PAGE_SIZE) == done
        for page in self.cache.page_table(SeqId(0)):
            self.memory.pages[page] = ["another's"] * PAGE_SIZE
        self.cache.check_integrity()
        self.cache.free(SeqId(0))

    @rule(forgets=st.booleans())
    def give_back(self, forgets: bool) -> None:
        """Memory of spent pages is lost. When memory is short, half of the idle pages are spent, too."""
        if forgets:
            self.cache.shrink()
        held = {page for seq_id in self.tokens for page in self.cache.page_table(seq_id)}
        spent = self.cache.take_spent()
        assert not held.intersection(spent)
        for page in spent:
            self.memory.pages[page] = ["given back"] * PAGE_SIZE
        assert self.cache.take_spent() == []

    @invariant()
    def books_balance(self) -> None:
        self.cache.check_integrity()
        if not self.tokens:
            assert self.cache.usage == 0.0

    @invariant()
    def everyone_reads_what_belongs_there(self) -> None:
        for seq_id, tokens in self.tokens.items():
            table = self.cache.page_table(seq_id)
            assert self.cache.num_cached(seq_id) == self.computed[seq_id]
            for at in range(self.computed[seq_id]):
                value = (self.salts[seq_id], tuple(tokens[: at + 1]))
                assert self.memory.pages[table[at // PAGE_SIZE]][at % PAGE_SIZE] == value

    @invariant()
    def what_is_alike_is_there_once(self) -> None:
        for one, other in itertools.combinations(self.tokens if self.prefix_cache else (), 2):
            for end in range(PAGE_SIZE, 1 + min(self.computed[one], self.computed[other]), PAGE_SIZE):
                alike = self.salts[one] == self.salts[other] and self.tokens[one][:end] == self.tokens[other][:end]
                tables = self.cache.page_table(one), self.cache.page_table(other)
                assert (tables[0][end // PAGE_SIZE - 1] == tables[1][end // PAGE_SIZE - 1]) is alike


class WithoutPrefixes(CacheMachine):
    prefix_cache = False


TestCache = CacheMachine.TestCase
TestCache.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)
TestWithoutPrefixes = WithoutPrefixes.TestCase
TestWithoutPrefixes.settings = settings(max_examples=20, stateful_step_count=40, deadline=None)


def cache_of(num_pages: int) -> KVCache:
    return KVCache(num_pages=num_pages, page_size=PAGE_SIZE)


def begin(cache: KVCache, seq_id: int, tokens: list[int], salt: str | None = None) -> int:
    """Compute all tokens of a new sequence. Return the number of tokens found in the cache."""
    cache.add(SeqId(seq_id), salt)
    found = cache.extend(SeqId(seq_id), list(map(TokenId, tokens)), len(tokens) - 1)
    assert cache.reserve(SeqId(seq_id), len(tokens))
    cache.advance(SeqId(seq_id), list(map(TokenId, tokens)), len(tokens))
    cache.check_integrity()
    return found


def test_what_was_not_used_longest_goes_first_and_its_end_before_its_beginning() -> None:
    cache = cache_of(8)
    first, second = [1] * 12, [2] * 12
    for seq_id, tokens in enumerate((first, second, first)):
        begin(cache, seq_id, tokens)
        cache.free(SeqId(seq_id))
    # Two of the 8 pages are free. The first sequence evicts one idle page, the second three.
    for seq_id, num_pages, left in ((3, 3, (8, 8)), (4, 6, (8, 0))):
        cache.add(SeqId(seq_id))
        assert cache.reserve(SeqId(seq_id), num_pages * PAGE_SIZE)
        cache.free(SeqId(seq_id))
        # The last page is never looked for whole: something must be computed.
        found = [cache.extend(_added(cache, seq), tokens, 11) for seq, tokens in ((5, first), (6, second))]
        assert tuple(found) == left
        for seq in (6, 5):
            cache.free(SeqId(seq))


def _added(cache: KVCache, seq_id: int) -> SeqId:
    cache.add(SeqId(seq_id))
    return SeqId(seq_id)


def test_salts_separate() -> None:
    cache = cache_of(12)
    assert [begin(cache, i, [7] * 9, salt) for i, salt in enumerate([None, "a", "b", "a", None])] == [0, 0, 0, 8, 8]


def test_who_goes_back_into_a_page_that_others_use_gets_one_of_its_own() -> None:
    cache = cache_of(12)
    begin(cache, 1, [1, 2, 3, 4, 5, 6, 7, 8, 9])
    begin(cache, 2, [1, 2, 3, 4, 5, 6, 7, 8, 0])
    shared = list(cache.page_table(SeqId(1)))
    cache.truncate(SeqId(1), 6)
    assert cache.reserve(SeqId(1), 8)
    assert cache.page_table(SeqId(1))[0] == shared[0]
    assert cache.page_table(SeqId(1))[1] != shared[1] == cache.page_table(SeqId(2))[1]
    cache.check_integrity()


def test_who_goes_back_and_is_alone_needs_no_page_more() -> None:
    cache = cache_of(2)
    begin(cache, 1, [1, 2, 3, 4, 5, 6, 7, 8])
    cache.truncate(SeqId(1), 6)
    assert cache.reserve(SeqId(1), 8)
    # The evicted pages are not found any more.
    assert cache.num_needed([TokenId(token) for token in (1, 2, 3, 4, 5, 6, 7, 8)], 8, None) == 1
    cache.check_integrity()


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
    cache = cache_of(4)
    begin(cache, 1, [1] * 5)
    cache.page_table(SeqId(1)).pop()
    with pytest.raises(AssertionError, match="counted 1 times and held 0"):
        cache.check_integrity()


def test_integrity_is_violated_when_a_page_would_outlive_one_before_it() -> None:
    cache = cache_of(4)
    begin(cache, 1, [1] * 9)
    cache.free(SeqId(1))
    idle = cache._pool._allocator.idle
    idle.move_to_end(next(iter(idle)))
    with pytest.raises(AssertionError, match="evicted after its parent"):
        cache.check_integrity()


def test_spent_pages_are_named_once_and_idle_pages_only_after_they_are_forgotten() -> None:
    cache, one = KVCache(num_pages=8, page_size=PAGE_SIZE), SeqId(1)
    tokens = [TokenId(token) for token in range(4 * PAGE_SIZE + 1)]
    cache.add(one)
    assert cache.reserve(one, len(tokens))
    cache.advance(one, tokens, len(tokens))
    assert cache.take_spent() == []  # held
    partial = cache.page_table(one)[-1]
    cache.free(one)
    assert cache.take_spent() == [partial]  # the others are idle
    assert cache.take_spent() == []
    cache.shrink()
    assert len(cache.take_spent()) == 2
    cache.add(one)
    assert cache.extend(one, tokens, len(tokens)) == 2 * PAGE_SIZE
