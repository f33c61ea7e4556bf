"""How often the guesses of a draft model are right, by the probability that the draft model gives them.

A guess is judged by the text, whether or not a forward pass checked it.
"""

from typing import Final

_NUM_BINS: Final = 10
"""Of equal width: guesses with about the same probability."""
_FIRST_GUESS: Final = 0.9
"""A guess is taken to be right with this part of its probability, before anything is measured."""
_FIRST_MEAN: Final = 0.7
_GUESS_WEIGHT: Final = 8.0
"""The first guess counts as much as so many measurements."""
_MEMORY: Final = 0.95
"""The weight of a measurement, for each later one of its kind."""
_ALL: Final = _NUM_BINS
"""The place of all guesses, behind the bins."""
_FIRST_RATES: Final = [*(_FIRST_GUESS * (at + 0.5) / _NUM_BINS for at in range(_NUM_BINS)), _FIRST_MEAN]


class AcceptanceRates:
    """`like`: the rates are taken to be these before anything is measured.

    >>> rates = AcceptanceRates()
    >>> rates.record(0.3, hit=True)
    >>> rates.probability(0.3) > AcceptanceRates().probability(0.3)
    True
    """

    def __init__(self, like: "AcceptanceRates | None" = None) -> None:
        rates = _FIRST_RATES if like is None else [like._rate(at) for at in range(_ALL + 1)]
        self._hits = [_GUESS_WEIGHT * rate for rate in rates]
        self._tries = [_GUESS_WEIGHT] * len(rates)

    def record(self, probability: float, *, hit: bool) -> None:
        """A token to which the draft model gave this probability, 0 to 1, was the next token, or not."""
        for at in (_bin(probability), _ALL):
            self._hits[at] = _MEMORY * self._hits[at] + hit
            self._tries[at] = _MEMORY * self._tries[at] + 1

    def probability(self, probability: float) -> float:
        """Return how often a token to which the draft model gives this probability is the next token."""
        return self._rate(_bin(probability))

    @property
    def mean(self) -> float:
        """How often a guess is right, before its probability is known."""
        return self._rate(_ALL)

    def _rate(self, at: int) -> float:
        return self._hits[at] / self._tries[at]


def _bin(probability: float) -> int:
    return min(int(probability * _NUM_BINS), _NUM_BINS - 1)
