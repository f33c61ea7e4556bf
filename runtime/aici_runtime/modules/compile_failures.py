"""Modules that could not be compiled: remembered, so that a module that costs a minute costs it once."""

import threading
import time
from collections.abc import Callable
from typing import Final

from aici_base.errors import UsageError

_MOST: Final = 1_000
_KEEP_S: Final = 3_600.0


class CompileFailures:
    """Remembers the last 1,000 failures for an hour: a time limit may fail on a busy machine, and hold an hour later.

    Any thread may call the methods.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._known: dict[str, tuple[float, UsageError]] = {}

    def note(self, module_id: str, error: UsageError) -> None:
        with self._lock:
            self._known.pop(module_id, None)
            if len(self._known) >= _MOST:
                del self._known[next(iter(self._known))]
            self._known[module_id] = self._clock(), error

    def check(self, module_id: str) -> None:
        """Raise UsageError if the module could not be compiled within the last hour."""
        with self._lock:
            since, error = self._known.get(module_id, (0.0, None))
            if error is None:
                return
            if self._clock() - since > _KEEP_S:
                del self._known[module_id]
                return
        raise error.with_message(error.message)
