"""How much of a predicted text an answer has: the usage that OpenAI's `prediction` reports."""

from bisect import bisect_left
from collections.abc import Sequence
from typing import Final

_SAME: Final = 2
"""After a token that differs, so many tokens in a row find the place in the prediction again."""


def num_accepted(prediction: Sequence[int], answer: Sequence[int]) -> int:
    """Return how many tokens of the answer the prediction had right, in the order of the prediction.

    After a token that differs, the prediction goes on behind the next place with the last two tokens of the answer.
    The count depends on the texts alone, not on what was drafted.

    >>> num_accepted([1, 2, 3, 4, 5, 6], [1, 2, 9, 4, 5, 6])
    3
    """
    places: dict[tuple[int, ...], list[int]] = {}
    for end in range(_SAME, len(prediction)):
        places.setdefault(tuple(prediction[end - _SAME : end]), []).append(end)
    num_right, at, is_found = 0, 0, True
    for end, token in enumerate(answer, 1):
        if is_found and at < len(prediction) and prediction[at] == token:
            num_right += 1
            at += 1
            continue
        after = places.get(tuple(answer[max(0, end - _SAME) : end]), [])
        place = bisect_left(after, at)
        is_found = place < len(after)
        if is_found:
            at = after[place]
    return num_right
