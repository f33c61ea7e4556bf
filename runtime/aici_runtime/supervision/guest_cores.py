"""The cores for calm guests: all but the core of the engine's thread.

Calm guests compute their masks while the engine's thread reports tokens and plans the next forward pass. With few
cores, the kernel would wake some of the guests on the core of that thread, and let the thread wait for them. When the
engine's thread waits for guests, or guests compute for long, all cores are for guests.
"""

import os
from typing import Final

from aici_runtime.supervision import worker_priority

_SHORT_US: Final = 1000
"""If the guests of a turn compute longer in sum, they have all cores: fewer cores would still be busy with guests when
the forward pass begins."""


class GuestCores:
    """Used by the stepper's thread, which keeps off the engine's core, too. `cores`: the cores that guests keep to;
    None before guests were first kept off a core."""

    def __init__(self) -> None:
        self._all = frozenset(os.sched_getaffinity(0))
        self.cores: frozenset[int] | None = None

    def calm(self, engine_core: int, spent_us: int) -> None:
        """Turns were calm. The engine's thread runs on `engine_core`; the guests of a turn computed for `spent_us`
        together, at most."""
        cores = self._all - {engine_core}
        self._choose(cores if cores and spent_us <= _SHORT_US else self._all)

    def lift(self) -> None:
        """A turn is not calm."""
        self._choose(self._all)

    def _choose(self, cores: frozenset[int]) -> None:
        if cores != (self.cores or self._all):
            self.cores = cores
            worker_priority.keep_to(0, cores)
