"""How many threads the model gets."""

import os
from collections.abc import Mapping
from pathlib import Path


def default_threads(environment: Mapping[str, str] = os.environ, root: Path = Path("/")) -> int:
    """Return OMP_NUM_THREADS if set, else the physical cores that this process may use, as torch does.

    Two threads on one core would wait for each other. `root`: the folder with /sys.
    """
    asked = environment.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    if asked.isdecimal() and int(asked):
        return int(asked)
    cores = set()
    for cpu in os.sched_getaffinity(0):
        siblings = root / f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"
        try:
            cores.add(siblings.read_text())
        except OSError:  # some containers hide /sys
            cores.add(str(cpu))
    return len(cores)
