"""How often the guesses of a draft model are right.

Guesses of all sequences tell how often a guess is right by the guess's probability in the draft model: the same weights
in another format are right far more often than their own probability says. A sequence's guesses tell how much better or
worse than others the sequence does: by temperature, and by constraint.

A guess is judged by the text, whether or not a forward pass checked it.
"""

from typing import Final

_NUM_BINS: Final = 5
"""Of equal width: guesses with about the same probability."""
_FIRST_GUESS: Final = 0.9
"""A guess is taken to be right with this part of its probability, before anything is measured."""
_FIRST_MEAN: Final = 0.7
_MEMORY: Final = 0.95
"""The weight of a measurement, for each later measurement of the kind."""
_MOST: Final = 0.99


class Rate:
    """How often guesses are right. `first`: before anything is measured; it counts as `weight` measurements.

    >>> rate = Rate(0.5, weight=2)
    >>> rate.record(hit=True)
    >>> 0.5 < rate.value < 1
    True
    """

    def __init__(self, first: float, *, weight: float) -> None:
        self._hits, self._tries = first * weight, weight

    def record(self, *, hit: bool) -> None:
        self._hits = _MEMORY * self._hits + hit
        self._tries = _MEMORY * self._tries + 1

    @property
    def value(self) -> float:
        return self._hits / self._tries


class AcceptanceRates:
    """The rates of all sequences. `new_sequence` returns the rate of a sequence, which `record` keeps."""

    def __init__(self) -> None:
        self._bins = [Rate(_FIRST_GUESS * (at + 0.5) / _NUM_BINS, weight=2) for at in range(_NUM_BINS)]
        self._mean = Rate(_FIRST_MEAN, weight=4)

    def new_sequence(self) -> Rate:
        """Return the rate of a sequence that is expected to be like the others."""
        return Rate(self._mean.value, weight=8)

    def record(self, probability: float, sequence: Rate, *, hit: bool) -> None:
        """The guess with this probability, 0 to 1, was the next token of a sequence, or not."""
        for rate in (self._bins[_bin(probability)], self._mean, sequence):
            rate.record(hit=hit)

    def probability(self, probability: float, sequence: Rate) -> float:
        """Return how often a guess with this probability is the next token of a sequence."""
        if not sequence.value:
            return 0.0
        return min(_MOST, self._bins[_bin(probability)].value * sequence.value / self._mean.value)


def _bin(probability: float) -> int:
    return min(int(probability * _NUM_BINS), _NUM_BINS - 1)
