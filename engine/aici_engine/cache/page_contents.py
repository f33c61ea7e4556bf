"""Which tokens have keys and values in which page of a draft model's storage.

Page i of the storage belongs to page i of the KV cache, and the page tables of the sequences address both. The cache
shares, copies and frees pages for the sake of the model, at times when the draft model has computed less than the
model, so a page table does not tell what the draft model's pages hold. The pages themselves tell: a page knows its
tokens and the page before, as the draft model has written both. A sequence goes on from the last page that fits its
tokens, whoever has written the page. Pages of others, of a time before a preemption, or behind tokens that a guest took
back do not fit.
"""

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from aici_base.ids import TokenId
from aici_engine.cache.ids import PageId

_NONE = 0


@dataclass(slots=True)
class _Content:
    """`number`: of this content; other contents of the page have other numbers. `before`: the number of the content
    before."""

    number: int
    before: int
    tokens: list[TokenId]


class PageContents:
    """The contents of all pages. Memory: about 40 bytes a token.

    >>> contents = PageContents(page_size=2)
    >>> contents.write([5, 6, 7], [4, 1], start=0)
    >>> contents.num_known([5, 6, 8, 9], [4, 1]), contents.num_known([5, 6, 7], [4, 2])
    (2, 2)
    """

    def __init__(self, *, page_size: int) -> None:
        self._page_size = page_size
        self._contents: dict[PageId, _Content] = {}
        self._numbers = itertools.count(_NONE + 1)

    def num_known(self, tokens: Sequence[TokenId], pages: Sequence[PageId]) -> int:
        """Return how many of the first tokens the pages hold. `pages`: the page table, complete for the tokens."""
        before, size = _NONE, self._page_size
        for first, page in zip(range(0, len(tokens), size), pages, strict=False):
            content = self._contents.get(page)
            if content is None or content.before != before:
                return first
            part = tokens[first : first + size]
            if content.tokens != part:
                return first + _num_same(content.tokens, part)
            before = content.number
        return len(tokens)

    def write(self, tokens: Sequence[TokenId], pages: Sequence[PageId], *, start: int) -> None:
        """Keys and values of `tokens` from position `start` on are written; `tokens` are all tokens of the sequence.

        The pages hold the tokens before `start`.
        """
        size = self._page_size
        for index in range(start // size, -(-len(tokens) // size)):
            before = self._contents[pages[index - 1]].number if index else _NONE
            content = self._contents.get(pages[index])
            offset, part = max(0, start - index * size), list(tokens[index * size : (index + 1) * size])
            if content is not None and content.before == before and len(content.tokens) == offset:
                content.tokens = part
            else:
                self._contents[pages[index]] = _Content(next(self._numbers), before, part)

    def forget(self, pages: Iterable[PageId]) -> None:
        """The keys and values of these pages are lost."""
        for page in pages:
            self._contents.pop(page, None)


def _num_same(some: Sequence[TokenId], others: Sequence[TokenId]) -> int:
    same = 0
    while same < min(len(some), len(others)) and some[same] == others[same]:
        same += 1
    return same
