"""How sure a median is."""

import math
from collections.abc import Sequence
from typing import Final

_DOUBT: Final = 0.05


def median_interval(values: Sequence[float]) -> tuple[float, float] | None:
    """Return the 95 % confidence interval of the median of a distribution, from independent samples of it.

    The ends are two of the samples: a sample is as likely below the median as above, whatever the distribution. None
    for fewer than six samples: even the least and the largest are not so sure.

    >>> median_interval([0.91, 0.99, 0.97, 0.96, 0.98, 0.95])
    (0.91, 0.99)
    """
    ordered = sorted(values)
    # If at most `k` samples are below the median, the median is below the sample `ordered[k]`; above likewise.
    skipped = max((k for k in range(len(ordered)) if 2 * _at_most(k, len(ordered)) <= _DOUBT), default=None)
    return None if skipped is None else (ordered[skipped], ordered[-1 - skipped])


def _at_most(count: int, number: int) -> float:
    """Return the probability of at most `count` heads of `number` tossed coins."""
    return sum(math.comb(number, k) for k in range(count + 1)) / float(2**number)
