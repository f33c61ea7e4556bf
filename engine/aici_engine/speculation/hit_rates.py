"""How often a match predicts the next token, measured for one sequence: by the length of the match, and by whether the
same tokens had the same successor earlier in the text (NEW, SAME or OTHER).

A prediction is judged whether or not a forward pass checked it: the text itself tells. So a sequence that stops to
draft goes on measuring, at no cost, and drafts again once its predictions come true.
"""

from typing import Final

NEW: Final = 0
"""The tokens before the predicted token stand nowhere earlier in the text."""
SAME: Final = 1
"""The same tokens stand earlier in the text, and the same token followed: a fixed part of a form, as `"name": "`."""
OTHER: Final = 2
"""The same tokens stand earlier in the text, and another token followed: a value of a form begins here."""

_FIRST_GUESS: Final = (0.1, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9)
"""The probability that a match of 1, 2, 3, ... tokens predicts a new token, before anything is measured."""
_LONGEST: Final = len(_FIRST_GUESS)
_FIRST_GUESSES: Final = (
    _FIRST_GUESS,
    tuple(1 - (1 - guess) / 2 for guess in _FIRST_GUESS),
    tuple(0.6 * guess for guess in _FIRST_GUESS),
)
"""The first guesses by NEW, SAME and OTHER."""
_GUESS_WEIGHT: Final = 3.0
"""The first guess counts as much as so many predictions."""
_MEMORY: Final = 0.9
"""The weight of a prediction, for each later prediction of the same length and kind."""


class HitRates:
    """The probabilities by length of the match and kind of the token (NEW, SAME or OTHER); longer matches than the
    table has count as its longest."""

    def __init__(self) -> None:
        self._hits = [[_GUESS_WEIGHT * guess for guess in guesses] for guesses in _FIRST_GUESSES]
        self._tries = [[_GUESS_WEIGHT] * _LONGEST for _ in _FIRST_GUESSES]

    def record(self, match_len: int, kind: int, *, hit: bool) -> None:
        """A match of `match_len` tokens, at least 1, has predicted the next token, or not."""
        at = min(match_len, _LONGEST) - 1
        self._hits[kind][at] = _MEMORY * self._hits[kind][at] + hit
        self._tries[kind][at] = _MEMORY * self._tries[kind][at] + 1

    def probability(self, match_len: int, kind: int) -> float:
        at = min(match_len, _LONGEST) - 1
        return self._hits[kind][at] / self._tries[kind][at]
