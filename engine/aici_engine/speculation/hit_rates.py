"""How often a match of a certain length predicts the next token, measured for one sequence.

A prediction is judged whether or not a forward pass checked it: the text itself tells. So a sequence that stops to
draft goes on measuring, at no cost, and drafts again once its predictions come true.
"""

from typing import Final

_FIRST_GUESS: Final = (0.1, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9)
"""The probability that a match of 1, 2, 3, ... tokens predicts the next token, before anything is measured."""
_LONGEST: Final = len(_FIRST_GUESS)
_GUESS_WEIGHT: Final = 3.0
"""The first guess counts as much as so many predictions."""
_MEMORY: Final = 0.9
"""The weight of a prediction, for each later prediction of the same length."""


class HitRates:
    """The probabilities by length of the match; longer matches than the table has count as its longest."""

    def __init__(self) -> None:
        self._hits = [_GUESS_WEIGHT * guess for guess in _FIRST_GUESS]
        self._tries = [_GUESS_WEIGHT] * _LONGEST

    def record(self, match_len: int, *, hit: bool) -> None:
        """A match of `match_len` tokens, at least 1, has predicted the next token, or not."""
        at = min(match_len, _LONGEST) - 1
        self._hits[at] = _MEMORY * self._hits[at] + hit
        self._tries[at] = _MEMORY * self._tries[at] + 1

    def probability(self, match_len: int) -> float:
        at = min(match_len, _LONGEST) - 1
        return self._hits[at] / self._tries[at]
