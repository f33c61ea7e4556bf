"""Measure the memory of processes."""

from pathlib import Path


def pss_bytes(pid: int) -> int:
    """Return the memory of a process and all its descendants in bytes; shared memory counts once."""
    total = _pss_of(pid)
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            total += sum(pss_bytes(int(child)) for child in children.read_text().split())
        except OSError:
            continue
    return total


def _pss_of(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith("Pss:"))
