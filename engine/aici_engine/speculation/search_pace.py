"""How often a sequence is searched for a draft: seldom while drafts win less time than the search takes.

In a large batch a draft wins little, and a text may repeat nothing for long.
"""

from typing import Final

_NEWEST: Final = 0.1
"""The weight of the newest search in the moving average."""
_FIRST: Final = 3.0
"""A new sequence is expected to win so many times what its first search costs: about a dozen searches may fail."""
_MOST_WON: Final = 100.0
"""A search wins at most so many times its cost. So fifty failed searches outweigh any success."""
_WAIT: Final = 7
"""While searches do not pay, so many tokens are left out between two searches."""


class SearchPace:
    """The pace of one sequence. All times are in seconds.

    >>> pace = SearchPace()
    >>> for _ in range(20):
    ...     pace.record(won_s=0, cost_s=1e-5)
    >>> [pace.is_due() for _ in range(9)]
    [False, False, False, False, False, False, False, True, True]
    """

    def __init__(self) -> None:
        self._mean: float | None = None
        """What a search wins, its cost taken off, in multiples of the cost."""
        self._wait = 0

    def is_due(self) -> bool:
        """Return whether to search for a draft now. To be called for each token until the search is recorded."""
        if not self._wait:
            return True
        self._wait -= 1
        return False

    def record(self, won_s: float, cost_s: float) -> None:
        """A search took `cost_s`, more than 0. `won_s`: what its draft is expected to save; 0 without a draft."""
        newest = min(_MOST_WON, won_s / cost_s) - 1
        mean = _FIRST if self._mean is None else self._mean
        self._mean = mean + _NEWEST * (newest - mean)
        self._wait = _WAIT if self._mean < 0 else 0
