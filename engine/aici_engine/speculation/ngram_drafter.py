"""Prompt lookup: the text after an earlier occurrence of the last tokens is a draft of the next tokens.

Summaries with quotes, edits of code and extracted data repeat their prompts, and most texts repeat themselves. A client
may also send the text that it expects (a *prediction*): the draft begins with the prediction.

A repeated form, as in JSON, differs where values are filled in. The text shows the places: the same tokens were
followed by another token before. A draft most likely ends at such a place (`hit_rates`).
"""

from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple

from aici_base.ids import TokenId
from aici_engine.speculation.hit_rates import NEW, OTHER, SAME, HitRates

_SIZES: Final = (3, 2, 1)
"""The sizes of the indexed n-grams. A match is looked up by the longest, and its true length is counted backwards. A
single token is looked up by its stem (`token_stems`)."""
_LONGEST_COUNTED: Final = 16
_MOST_INDEXED: Final = 8192
"""Only so many of the last tokens are indexed when an index is made. The index is made anew at twice the number."""
_LEAST_PROBABILITY: Final = 0.1
"""No pass is so much faster for a token more that a less likely token would pay."""
_MOST_UNDONE: Final = 256
"""So many of the last tokens can be taken back. If a guest takes more back, the index is made anew."""
_COMPARED: Final = 8
"""Removed tokens are noticed if the text differs in its last tokens."""


class Draft(NamedTuple):
    """`probabilities[i]`: that tokens 0 to i will all be sampled."""

    tokens: list[TokenId]
    probabilities: list[float]


class NgramDrafter:
    """The drafter of one sequence. The draft depends on the tokens alone, not on times.

    `prediction`: the expected text after the first `prompt_len` tokens. `stems`: by token, see `token_stems`; a
    token beyond is its own stem.
    Tokens that a guest takes back are taken out of the index. Memory: about 300 bytes a token of the last
    `_MOST_INDEXED` to twice as many tokens, and of as many tokens of the prediction.

    >>> drafter = NgramDrafter()
    >>> drafter.read([7, 8, 9, 10, 5, 7, 8])
    >>> drafter.draft(2).tokens
    [9, 10]
    """

    def __init__(self, prediction: Sequence[TokenId] = (), *, prompt_len: int = 0, stems: Sequence[int] = ()) -> None:
        self._stems = stems
        self._prediction = prediction[:_MOST_INDEXED]
        self._prompt_len = prompt_len
        self._tokens: list[TokenId] = []
        """The prediction, and the last tokens of the sequence."""
        self._kinds = bytearray()
        """NEW, SAME or OTHER, for each token of `_tokens`."""
        self._offset = 0
        """The index in `_tokens` of the sequence's first token; negative if its first tokens are not indexed."""
        self._last_seen: dict[tuple[int, ...], int] = {}
        """The index after the last occurrence of an n-gram, the n-gram at the end of the text excluded."""
        self._before: deque[list[int | None]] = deque(maxlen=_MOST_UNDONE)
        """What the last tokens replaced in `_last_seen`, by size."""
        self._source = 0
        """The index of the predicted next token."""
        self._match_len = 0
        """The length of the match before `_source` and at the end of the text; 0 without a match."""
        self._rates = HitRates()

    def read(self, tokens: Sequence[TokenId]) -> None:
        """Read the sequence's tokens, of which the first are mostly known."""
        if self._prediction and not self._tokens:
            self._index(tokens[: self._prompt_len])
            # The longest match: no shorter match in the prompt takes its place.
            self._source, self._match_len = 0, _LONGEST_COUNTED
        elif not self._tokens or self._is_full() or not (self._is_continued(tokens) or self._take_back(tokens)):
            self._index(tokens)
            self._match_again()
            return
        for token in tokens[len(self._tokens) - self._offset :]:
            self._judge(token)
            self._append(token)
            if self._match_len < _LONGEST_COUNTED:
                self._match_again()

    def draft(self, most: int, least_probability: float = 0.0) -> Draft:
        """Return at most `most` tokens, without unlikely ones; none without a match.

        A repetition at the end of the text is continued.
        """
        least_probability = max(least_probability, _LEAST_PROBABILITY)
        tokens: list[TokenId] = []
        probabilities: list[float] = []
        probability = 1.0
        if self._match_len:
            period = len(self._tokens) - self._source
            for at in range(most):
                kind = self._kinds[self._source + at] if at < period else SAME
                probability *= self._rates.probability(self._match_len + at, kind)
                if probability < least_probability:
                    break
                tokens.append(self._tokens[self._source + at] if at < period else tokens[at - period])
                probabilities.append(probability)
        return Draft(tokens, probabilities)

    def _is_full(self) -> bool:
        return len(self._tokens) > len(self._prediction) + 2 * _MOST_INDEXED

    def _is_continued(self, tokens: Sequence[TokenId]) -> bool:
        """Return whether `tokens` goes on where the known tokens end."""
        known = len(self._tokens) - self._offset
        first = max(0, len(self._prediction) - self._offset, known - _COMPARED)
        return known <= len(tokens) and tokens[first:known] == self._tokens[first + self._offset :]

    def _index(self, tokens: Sequence[TokenId]) -> None:
        """Begin anew with the prediction and these tokens, and keep the measured rates."""
        num_left_out = max(0, len(tokens) - _MOST_INDEXED)
        self._tokens, self._kinds, self._last_seen = [], bytearray(), {}
        self._offset = len(self._prediction) - num_left_out
        self._match_len = 0
        for token in self._prediction:
            self._append(token)
        self._before.clear()
        for token in tokens[num_left_out:]:
            self._append(token)

    def _take_back(self, tokens: Sequence[TokenId]) -> bool:
        """Take back the last tokens, down to those that `tokens` begins with. Return False if they are too many."""
        text, offset = self._tokens, self._offset
        same = len(text) - len(self._before)
        first = max(len(self._prediction), same - _COMPARED)
        if same - offset > len(tokens) or text[first:same] != tokens[first - offset : same - offset]:
            return False
        while same < len(text) and same - offset < len(tokens) and text[same] == tokens[same - offset]:
            same += 1
        while len(text) > same:
            text.pop()
            self._kinds.pop()
            for size, index in zip(_SIZES, self._before.pop(), strict=True):
                if index is not None:
                    self._last_seen[self._last(size)] = index
                elif len(text) >= size:
                    del self._last_seen[self._last(size)]
        self._match_len = 0
        self._match_again()
        return True

    def _judge(self, token: TokenId) -> None:
        """The next token is known: compare its prediction."""
        if self._match_len:
            hit = self._tokens[self._source] == token
            self._rates.record(self._match_len, self._kinds[self._source], hit=hit)
            self._match_len = self._match_len + 1 if hit else 0
            self._source += 1

    def _append(self, token: TokenId) -> None:
        """Append a token, and index the n-grams before the token."""
        end = len(self._tokens)
        before: list[int | None] = []
        for size in _SIZES:
            if end >= size:
                ngram = self._last(size)
                before.append(self._last_seen.get(ngram))
                self._last_seen[ngram] = end
            else:
                before.append(None)
        self._before.append(before)
        last_seen = before[0] if before[0] is not None else before[1]
        self._kinds.append(NEW if last_seen is None else SAME if self._tokens[last_seen] == token else OTHER)
        self._tokens.append(token)

    def _last(self, size: int) -> tuple[int, ...]:
        """Return the n-gram at the end of the text."""
        if size == 1 and (last := self._tokens[-1]) < len(self._stems):
            return (self._stems[last],)
        return tuple(self._tokens[-size:])

    def _match_again(self) -> None:
        """Follow the last occurrence of the last tokens, if its match is longer than the followed match."""
        text = self._tokens
        for size in _SIZES:
            if len(text) >= size and (source := self._last_seen.get(self._last(size))) is not None:
                match_len = self._count_back(source, size)
                if match_len > self._match_len:
                    self._source, self._match_len = source, match_len
                return

    def _count_back(self, source: int, match_len: int) -> int:
        text, end = self._tokens, len(self._tokens)
        while (
            match_len < _LONGEST_COUNTED
            and source > match_len
            and text[source - match_len - 1] == text[end - match_len - 1]
        ):
            match_len += 1
        return match_len
