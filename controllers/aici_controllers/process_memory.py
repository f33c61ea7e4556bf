"""How much memory processes take together."""

from pathlib import Path


def pss_bytes(pid: int) -> int:
    """Of a process and all below it: what is shared counts once."""
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
