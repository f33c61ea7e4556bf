"""The prompts of each replica in an exact tree of pages, to find the replica with the longest common beginning."""

from array import array
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple, TypeAlias

PAGE_TOKENS: Final = 16
MAX_PAGES: Final = 1 << 17
"""Two million tokens, in about 50 MB."""

_Key: TypeAlias = tuple[int, bytes]


class _Node(NamedTuple):
    """`number`: never used twice. `holders`: the lives of replicas with the prompt in their cache, as far as the
    page."""

    number: int
    holders: set[int]


class PrefixTree:
    """Remembers the prompts of each replica. At most `max_pages` pages; the least recently used pages are forgotten
    first.

    Prompts with different salts share nothing, as in the cache of an engine.

    `add` and `match` take time by the length of the prompt, `forget` takes next to none: a replica has a new *life*
    afterwards, and pages of earlier lives are no longer seen.
    """

    def __init__(self, *, max_pages: int = MAX_PAGES) -> None:
        self._max_pages = max_pages
        # The key of a node is the number of the parent, and the tokens. The root of a salt has the parent 0.
        # Order: the least recently used first. A parent is always more recent than the children, so the first node
        # is a leaf.
        self._nodes: OrderedDict[_Key, _Node] = OrderedDict()
        self._last_number = 0
        self._lives: dict[int, int] = {}
        self._replicas: dict[int, int] = {}
        """Life → replica, of the lives of now."""

    def __len__(self) -> int:
        return len(self._nodes)

    def match(self, salt: str | None, prompt: Sequence[int]) -> dict[int, int]:
        """Return the number of cached tokens of `prompt` by replica. Replicas without a page are left out."""
        matched: dict[int, int] = {}
        parent, num_tokens = 0, 0
        for page in _pages(salt, prompt):
            if (node := self._nodes.get((parent, page))) is None:
                break
            if parent:
                num_tokens += PAGE_TOKENS
                for life in node.holders:
                    if (replica := self._replicas.get(life)) is not None:
                        matched[replica] = num_tokens
            parent = node.number
        return matched

    def add(self, salt: str | None, prompt: Sequence[int], replica: int) -> None:
        """Record that `prompt` was sent to a replica."""
        life = self._life_of(replica)
        path: list[_Key] = []
        parent = 0
        for page in _pages(salt, prompt):
            key = (parent, page)
            if (node := self._nodes.get(key)) is None:
                self._last_number += 1
                node = self._nodes[key] = _Node(self._last_number, set())
            elif not self._replicas.keys() >= node.holders:
                node.holders.intersection_update(self._replicas)
            node.holders.add(life)
            path.append(key)
            parent = node.number
        for key in reversed(path):
            self._nodes.move_to_end(key)
        while len(self._nodes) > self._max_pages:
            self._nodes.popitem(last=False)

    def forget(self, replica: int) -> None:
        """Forget the prompts of a replica: the engine has ended."""
        if (life := self._lives.pop(replica, None)) is not None:
            del self._replicas[life]

    def _life_of(self, replica: int) -> int:
        if (life := self._lives.get(replica)) is None:
            self._last_number += 1
            life = self._lives[replica] = self._last_number
            self._replicas[life] = replica
        return life


def _pages(salt: str | None, prompt: Sequence[int]) -> Iterator[bytes]:
    """Yield the salt, then the full pages of the prompt."""
    yield repr(salt).encode()
    for start in range(0, len(prompt) - PAGE_TOKENS + 1, PAGE_TOKENS):
        yield array("q", prompt[start : start + PAGE_TOKENS]).tobytes()
