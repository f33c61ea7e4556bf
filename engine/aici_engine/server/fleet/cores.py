"""Divides the cores of this machine among the replicas of a model."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple


class CoreShare(NamedTuple):
    """A replica's part of the machine. `cpus`: the processors of the replica's processes; empty: all processors.
    `num_threads`: of the model."""

    cpus: tuple[int, ...]
    num_threads: int


def physical_cores(root: Path = Path("/")) -> list[tuple[int, ...]]:
    """Return the processors of every core that this process may use. `root`: the folder with /sys."""
    cores: dict[str, list[int]] = {}
    for cpu in sorted(os.sched_getaffinity(0)):
        siblings = root / f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"
        try:
            core = siblings.read_text()
        except OSError:  # some containers hide /sys
            core = str(cpu)
        cores.setdefault(core, []).append(cpu)
    return [tuple(cpus) for cpus in cores.values()]


def divide(
    cores: Sequence[tuple[int, ...]], num_replicas: int, num_threads: int | None = None, *, pins: bool = True
) -> list[CoreShare]:
    """Return the shares of the replicas: neighbouring cores, in parts whose sizes differ by 1 at most.

    `num_threads`: of all replicas together; None is a thread a core. With fewer cores than replicas, the replicas
    share all cores, with a thread for every replica. Without `pins`, all replicas have all processors.

    >>> divide([(0, 4), (1, 5), (2, 6)], 2)
    [CoreShare(cpus=(0, 4, 1, 5), num_threads=2), CoreShare(cpus=(2, 6), num_threads=1)]
    """
    threads = len(cores) if num_threads is None else num_threads
    counts = _parts(threads, num_replicas)
    if num_replicas == 1 or len(cores) < num_replicas or not pins:
        return [CoreShare((), max(1, count)) for count in counts]
    shares, first = [], 0
    for size, count in zip(_parts(len(cores), num_replicas), counts, strict=True):
        mine = cores[first : first + size]
        shares.append(CoreShare(tuple(cpu for core in mine for cpu in core), max(1, count)))
        first += size
    return shares


def _parts(total: int, num_parts: int) -> list[int]:
    return [total // num_parts + (number < total % num_parts) for number in range(num_parts)]
