"""What a page of a draft model's storage holds, however the cache hands pages from one sequence to another."""

import random

from hypothesis import given
from hypothesis import strategies as st

from aici_base.ids import TokenId
from aici_engine.cache.ids import PageId
from aici_engine.cache.page_contents import PageContents

SIZE = 3
NUM_PAGES = 7


@given(st.integers(0, 10_000))
def test_a_page_counts_only_for_the_text_that_it_was_written_for(seed: int) -> None:
    """Texts of few different tokens on any pages, some shared. Each place of the storage knows the text before it."""
    chance = random.Random(seed)
    contents = PageContents(page_size=SIZE)
    storage: dict[tuple[PageId, int], tuple[TokenId, ...]] = {}
    texts: list[tuple[list[TokenId], list[PageId]]] = []
    for _ in range(12):
        if texts and chance.random() < 0.7:
            tokens, pages = chance.choice(texts)
            kept = chance.randrange(len(tokens) + 1)
            tokens = tokens[:kept]
            if chance.random() < 0.3:
                pages = pages[: kept // SIZE]
        else:
            tokens, pages = [], []
        tokens = tokens + [TokenId(chance.randrange(2)) for _ in range(chance.randint(1, 6))]
        free = [PageId(page) for page in range(NUM_PAGES) if page not in pages]
        chance.shuffle(free)
        pages = (pages + free)[: -(-len(tokens) // SIZE)]
        if len(pages) * SIZE < len(tokens):
            continue
        num_known = contents.num_known(tokens, pages)
        for at in range(num_known):
            assert storage[pages[at // SIZE], at % SIZE] == tuple(tokens[: at + 1])
        start = min(num_known, len(tokens) - 1)
        for at in range(start, len(tokens)):
            storage[pages[at // SIZE], at % SIZE] = tuple(tokens[: at + 1])
        contents.write(tokens, pages, start=start)
        assert contents.num_known(tokens, pages) == len(tokens)
        texts.append((tokens, pages))
        if chance.random() < 0.2:
            lost = [PageId(chance.randrange(NUM_PAGES))]
            contents.forget(lost)
            storage = {place: text for place, text in storage.items() if place[0] not in lost}


def test_a_text_with_the_same_beginning_finds_the_pages_of_the_other() -> None:
    contents = PageContents(page_size=2)
    some, others = [TokenId(token) for token in (5, 6, 7, 8, 9)], [TokenId(token) for token in (5, 6, 7, 8, 1)]
    contents.write(some, [PageId(3), PageId(1), PageId(4)], start=0)
    assert contents.num_known(others, [PageId(3), PageId(1), PageId(0)]) == 4
    contents.write(others, [PageId(3), PageId(1), PageId(0)], start=4)
    assert contents.num_known(some, [PageId(3), PageId(1), PageId(4)]) == 5
