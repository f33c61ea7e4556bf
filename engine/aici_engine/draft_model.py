"""A small model that guesses the next tokens of the engine's model.

Guesses are checked, so the draft model's numbers change no text. Its keys and values lie in pages of their own with the
numbers of the KV cache's pages: no second allocator decides about pages, and sequences with the same beginning share
the draft model's work too (`page_contents`). The copies of the cache do not reach these pages: after a copy, the tokens
of a page are computed again. Only forks make copies, and forks do not draft.
"""

from collections.abc import Sequence

import numpy as np

from aici_base.ids import SeqId, TokenId
from aici_engine.cache.ids import PageId
from aici_engine.cache.page_contents import PageContents
from aici_engine.model.interface import Model
from aici_engine.sample.masks import Logits
from aici_engine.sample.pipeline import Choose, choose
from aici_engine.speculation.model_speculator import DraftModel, DraftText, Guess
from aici_engine.step_input import Chunk


class PagedDraftModel(DraftModel):
    """Runs `model` on the calling thread. `vocab_size`: the tokens of the tokenizer; no other token is guessed.

    `memory_bytes`: the weights and all pages.
    """

    def __init__(
        self, model: Model, *, num_pages: int, page_size: int, vocab_size: int, choose: Choose = choose
    ) -> None:
        self.context = model.context
        self.vocab_size = vocab_size
        self.eos_tokens = model.eos_tokens
        self.memory_bytes = model.weight_bytes + num_pages * page_size * model.token_bytes
        self._model = model
        self._choose = choose
        self._storage = model.make_storage(num_pages=num_pages, page_size=page_size)
        self._contents = PageContents(page_size=page_size)

    def num_known(self, tokens: Sequence[TokenId], pages: Sequence[PageId]) -> int:
        return self._contents.num_known(tokens, pages)

    def compute(self, texts: Sequence[DraftText]) -> list[Guess]:
        chunks = [
            Chunk(SeqId(number), text.tokens[text.start :], text.start, text.pages, int(text.guesses))
            for number, text in enumerate(texts)
        ]
        rows = self._model.forward(self._storage, chunks)[:, : self.vocab_size]
        for text in texts:
            self._contents.write(text.tokens, text.pages, start=text.start)
        if not len(rows):
            return []
        guessing = [text for text in texts if text.guesses]
        tokens = np.array([self._next(row, text) for row, text in zip(rows, guessing, strict=True)])
        rows -= rows[np.arange(len(rows)), tokens][:, None]
        probabilities = np.nan_to_num(1 / np.exp(rows, out=rows).sum(axis=1))
        return [
            Guess(TokenId(token), probability)
            for token, probability in zip(tokens.tolist(), probabilities.tolist(), strict=True)
        ]

    def _next(self, row: Logits, text: DraftText) -> int:
        likeliest = int(row.argmax())
        # A row that is not finite has no token to choose, and any guess will do.
        if text.sampling.greedy or not np.isfinite(row[likeliest]):
            return likeliest
        return self._choose(row.copy(), text.sampling, text.draw)

    def discard(self, pages: Sequence[PageId]) -> None:
        """Give the memory of `pages`, in order, back to the system. Their contents are lost."""
        self._storage.discard(pages)
        self._contents.forget(pages)
