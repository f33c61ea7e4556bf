"""Looking at processes from outside, by id."""

import os
import time
from collections.abc import Callable
from pathlib import Path


def descendants(pid: int) -> set[int]:
    """All processes below `pid` now."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                # The name in parentheses may hold spaces; the parent's id is the second field after the name.
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except (OSError, IndexError):
                continue
    found: set[int] = set()
    while more := {child for child, parent in parents.items() if parent in found | {pid}} - found:
        found |= more
    return found


def command(pid: int) -> str:
    """The short name of a process: `aicirt`, `aicirt-seq`, ..."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def alive(pids: set[int]) -> set[int]:
    """Return the processes of `pids` that still run (a zombie does not)."""
    return {pid for pid in pids if _state(pid) not in ("", "Z", "X")}


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


def wait_until(done: Callable[[], bool], timeout_s: float) -> bool:
    """Return whether `done()` came true within the time. Polls: for tests only."""
    deadline = time.monotonic() + timeout_s
    while not done():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def shared_objects(pid: int) -> list[str]:
    """Return the names in /dev/shm of the run of engine process `pid`."""
    return [name for name in os.listdir("/dev/shm") if f"aici-{pid}-" in name]
