"""The processor time of this process and of all processes below it, by the names of the processes."""

import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from aici_runtime.supervision.worker_priority import cpu_clock

_ENGINE = "engine"
"""The name of this process in the figures."""


@dataclass(frozen=True, slots=True)
class ProcessorTime:
    """`used_s`: seconds of processor time of each process since its start, by process id and name. `at`: when they were
    read (time.perf_counter())."""

    used_s: Mapping[tuple[int, str], float]
    at: float

    @staticmethod
    def read(root: int) -> "ProcessorTime":
        """Read the clocks of the process `root` and of its descendants. Takes about 10 µs a process."""
        used_s = {}
        for pid in _tree(root):
            try:
                name = _ENGINE if pid == root else Path(f"/proc/{pid}/comm").read_text().strip()
                used_s[pid, name] = time.clock_gettime(cpu_clock(pid))
            except OSError:  # the process has ended meanwhile
                continue
        return ProcessorTime(used_s, time.perf_counter())

    def since(self, earlier: "ProcessorTime") -> dict[str, float]:
        """Return the seconds of processor time since `earlier`, by name. A process that has ended since is left out."""
        spent: defaultdict[str, float] = defaultdict(float)
        for key, used_s in self.used_s.items():
            spent[key[1]] += used_s - earlier.used_s.get(key, 0.0)
        return dict(spent)


def _tree(root: int) -> Iterator[int]:
    yield root
    try:
        tasks = list(Path(f"/proc/{root}/task").iterdir())
        children = [int(child) for task in tasks for child in (task / "children").read_text().split()]
    except OSError:
        return
    for child in children:
        yield from _tree(child)
