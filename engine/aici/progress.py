"""A progress line: the number of requests of a batch that have ended."""

import sys
import time
from typing import Final, Self

_WIDTH: Final = 30
_EVERY_S: Final = 0.1


class Progress:
    """Writes to stderr, at most ten times a second. `shown=None` shows the line if stderr is a terminal."""

    def __init__(self, total: int, shown: bool | None) -> None:
        self._total = total
        self._shown = sys.stderr.isatty() if shown is None else shown
        self._started = time.monotonic()
        self._last = 0.0

    def __enter__(self) -> Self:
        self.update(0)
        return self

    def __exit__(self, *exc: object) -> None:
        if self._shown:
            sys.stderr.write("\n")
            sys.stderr.flush()

    def update(self, num_done: int) -> None:
        now = time.monotonic()
        if not self._shown or (num_done < self._total and now - self._last < _EVERY_S):
            return
        self._last = now
        filled = _WIDTH * num_done // self._total
        rate = num_done / max(now - self._started, 1e-9)
        sys.stderr.write(f"\r[{'#' * filled}{' ' * (_WIDTH - filled)}] {num_done}/{self._total}, {rate:.1f}/s ")
        sys.stderr.flush()
