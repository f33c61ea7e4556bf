"""The times of a sequence, by the monotonic clock."""

import time

from aici_engine.config import BACKGROUND_PRIORITY
from aici_engine.events import Timings

PRIORITY_S = 60.0
"""One step of priority counts as much as a minute of waiting, so no request waits for ever."""


class Clock:
    """`due_at`, in seconds: the time of submission, moved by the priority. Sequences are served by `due_at`.
    `is_background`: the sequence computes only if no other sequence has work. `right_at`: `due_at`, or later if a
    sequence of the same owner was served meanwhile; beside other owners, it decides in place of `due_at`.

    The scheduler calls `start` and `wait_behind`, the output `mark_token`.
    """

    def __init__(self, submitted_at: float, priority: int = 0) -> None:
        self.submitted_at = submitted_at
        self.due_at = submitted_at + PRIORITY_S * priority
        self.right_at = self.due_at
        self.is_background = priority >= BACKGROUND_PRIORITY
        self._started_at: float | None = None
        self._first_token_at: float | None = None

    def fork(self) -> "Clock":
        """Return the clock of a fork, which starts now."""
        fork = Clock(self.submitted_at)
        fork.due_at, fork.right_at = self.due_at, self.right_at
        fork.is_background = self.is_background
        fork.start()
        return fork

    def wait_behind(self, served_at: float) -> None:
        """A sequence of the same owner was served until now. No effect on a sequence that has run."""
        if self._started_at is None:
            self.right_at = max(self.right_at, served_at + self.due_at - self.submitted_at)

    def start(self) -> None:
        """The sequence runs. Only the first call counts: a preempted sequence runs again."""
        if self._started_at is None:
            self._started_at = time.monotonic()

    def mark_token(self) -> None:
        """A token was appended. Only the first call counts."""
        if self._first_token_at is None:
            self._first_token_at = time.monotonic()

    def timings(self) -> Timings:
        """Return the times until now, in seconds since submission."""
        begin = self.submitted_at
        return Timings(
            started_s=None if self._started_at is None else self._started_at - begin,
            first_token_s=None if self._first_token_at is None else self._first_token_at - begin,
            total_s=time.monotonic() - begin,
        )
