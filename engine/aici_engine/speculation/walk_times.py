"""How long a right token of a draft takes after the forward pass: sampling, and waiting for the guest's answer.

Without a draft the guest computes its mask during the forward pass, so the walk of a controlled sequence costs more.
"""

from typing import Final

_NEWEST: Final = 0.1
"""The weight of the newest walk in the moving average."""
_FADING: Final = 0.998
"""The part of a measurement that a forward pass without a walk leaves: what was too slow once is tried again."""


class WalkTimes:
    """Seconds a sampled row, by whether the sequence has a guest. The average begins at 0, so that one walk on a busy
    machine does not end all drafts.

    >>> times = WalkTimes()
    >>> times.record(4, 0.004, with_guests=True)
    >>> times.expected_s(with_guest=True), times.expected_s(with_guest=False)
    (0.0001, 0.0)
    """

    def __init__(self) -> None:
        self._times: dict[bool, float] = {}

    def record(self, num_rows: int, time_s: float, *, with_guests: bool) -> None:
        """A walk has sampled `num_rows` rows, at least 1, in `time_s` seconds."""
        known = self._times.get(with_guests, 0.0)
        self._times[with_guests] = known + _NEWEST * (time_s / num_rows - known)

    def fade(self) -> None:
        """A forward pass had no drafts."""
        for kind in self._times:
            self._times[kind] *= _FADING

    def expected_s(self, *, with_guest: bool) -> float:
        return self._times.get(with_guest, 0.0)
