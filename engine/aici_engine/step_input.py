"""A step as plain data: what an executor computes. Holds no tensors, no sequences and no storage."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from aici_base.ids import SeqId, TokenId
from aici_engine.cache.ids import PageId

PENDING: Final = TokenId(0)
"""In the place of a token that only the device knows."""


class Chunk(NamedTuple):
    """Tokens of one sequence that a step computes: positions `start` to `start + len(tokens) - 1`.

    `pages`: the page table of the sequence, complete for these positions. The list belongs to the cache and is valid
    until the next change of the cache; an executor that keeps the pages longer copies them. The step returns logits for
    the last `num_logits` tokens of the chunk, and final states for the last `num_states` tokens.
    """

    seq_id: SeqId
    tokens: Sequence[TokenId]
    start: int
    pages: Sequence[PageId]
    num_logits: int
    num_states: int = 0

    @property
    def end(self) -> int:
        """The number of tokens of the sequence after the step."""
        return self.start + len(self.tokens)


class PageCopy(NamedTuple):
    """Copy the keys and values of page `source` to page `target`, in all layers."""

    source: PageId
    target: PageId


class StepInput(NamedTuple):
    """One forward pass. An executor first drops `forgotten`, then makes `copies`, in order, then computes `chunks`.

    `forgotten`: sequences that gave up their page tables since the last step; for executors that mirror page tables. A
    chunk of the same step may begin a new page table for such a sequence.
    """

    chunks: Sequence[Chunk]
    copies: Sequence[PageCopy] = ()
    forgotten: Sequence[SeqId] = ()
