"""The tree of prompts against a naive oracle: a list of the pages of every prompt, in the order of their use."""

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from aici_engine.server.fleet.prefix_tree import PAGE_TOKENS, PrefixTree

TOKENS = st.integers(0, 1)
"""Two tokens make pages alike."""
PAGES = st.lists(st.lists(TOKENS, min_size=1, max_size=1).map(lambda one: one * PAGE_TOKENS), max_size=4)
PROMPTS = st.tuples(PAGES, st.integers(0, PAGE_TOKENS - 1)).map(lambda parts: sum(parts[0], [7] * 0) + [9] * parts[1])
SALTS = st.sampled_from([None, "", "a"])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), SALTS, PROMPTS, st.integers(1, 3)),
        st.tuples(st.just("forget"), st.none(), st.just([]), st.integers(1, 3)),
        st.tuples(st.just("match"), SALTS, PROMPTS, st.just(0)),
    ),
    max_size=30,
)


class Oracle:
    """Holds every beginning of every prompt by its whole text: (salt, tokens) → replicas, the least recently used
    first."""

    def __init__(self, max_pages: int) -> None:
        self._max_pages = max_pages
        self._known: dict[tuple[str | None, tuple[int, ...]], set[int]] = {}

    def __len__(self) -> int:
        return len(self._known)

    def match(self, salt: str | None, prompt: Sequence[int]) -> dict[int, int]:
        found: dict[int, int] = {}
        for end in range(PAGE_TOKENS, len(prompt) + 1, PAGE_TOKENS):
            found |= dict.fromkeys(self._known.get((salt, tuple(prompt[:end])), ()), end)
        return found

    def add(self, salt: str | None, prompt: Sequence[int], replica: int) -> None:
        whole = len(prompt) // PAGE_TOKENS * PAGE_TOKENS
        for end in range(whole, -1, -PAGE_TOKENS):
            key = (salt, tuple(prompt[:end]))
            self._known[key] = self._known.pop(key, set()) | {replica}
        while len(self._known) > self._max_pages:
            del self._known[next(iter(self._known))]

    def forget(self, replica: int) -> None:
        self._known = {key: holders - {replica} for key, holders in self._known.items()}


@given(STEPS, st.integers(1, 8))
@settings(max_examples=300, deadline=None)
def test_the_tree_knows_what_the_oracle_knows(
    steps: Sequence[tuple[str, str | None, list[int], int]], max_pages: int
) -> None:
    tree, oracle = PrefixTree(max_pages=max_pages), Oracle(max_pages)
    for kind, salt, prompt, replica in steps:
        if kind == "add":
            tree.add(salt, prompt, replica)
            oracle.add(salt, prompt, replica)
        elif kind == "forget":
            tree.forget(replica)
            oracle.forget(replica)
        assert tree.match(salt, prompt) == oracle.match(salt, prompt)
        assert len(tree) == len(oracle) <= max_pages


def test_only_full_pages_of_the_same_salt_match() -> None:
    tree = PrefixTree()
    tree.add("a", list(range(40)), 1)
    tree.add("a", list(range(16)), 2)
    assert tree.match("a", list(range(60))) == {1: 32, 2: 16}
    assert tree.match("a", [*range(31), 99]) == {1: 16, 2: 16}
    assert tree.match("b", list(range(60))) == {}
    tree.forget(1)
    assert tree.match("a", list(range(60))) == {2: 16}


def test_a_new_life_of_a_replica_begins_without_prompts_and_earlier_lives_leave_no_holders() -> None:
    tree = PrefixTree()
    prompt = list(range(PAGE_TOKENS))
    for _ in range(3):
        tree.add(None, prompt, 1)
        assert tree.match(None, prompt) == {1: PAGE_TOKENS}
        tree.forget(1)
        assert tree.match(None, prompt) == {}
    tree.add(None, prompt, 2)
    assert [node.holders for node in tree._nodes.values()] == [{tree._lives[2]}] * 2
