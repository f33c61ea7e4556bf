"""The cores for guests: all but the core of the engine's thread.

Guests compute their masks while the engine's thread reports tokens and plans the next forward pass. With few cores, the
kernel would wake some of the guests on the core of that thread, and let the thread wait for them.
"""

import os
import time
from typing import Final

from aici_runtime.supervision import worker_priority

_EVERY_S: Final = 1.0
"""The engine's thread seldom moves. Guests follow at most so often."""


class GuestCores:
    """Used by the stepper's thread, which keeps off the engine's core, too. `cores`: those for guests; None as long as
    the core of the engine is not known, or the only one."""

    def __init__(self) -> None:
        self._all = frozenset(os.sched_getaffinity(0))
        self._learned_at = -_EVERY_S
        self.cores: frozenset[int] | None = None

    def learn(self, engine_core: int) -> None:
        """The engine's thread runs on this core."""
        cores = self._all - {engine_core}
        now = time.monotonic()
        if cores and cores != self.cores and now - self._learned_at >= _EVERY_S:
            self.cores, self._learned_at = cores, now
            worker_priority.keep_to(0, cores)
