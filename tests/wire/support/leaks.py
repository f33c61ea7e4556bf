"""Count the processes and open descriptors of a runtime; neither may grow."""

import contextlib
import os
import time
from collections import Counter
from pathlib import Path

from tests.wire.support.mailbox import PATIENCE_S
from tests.wire.support.processes import members


def holdings(group: int) -> Counter[str]:
    """Return processes and descriptors by process name."""
    held: Counter[str] = Counter()
    for pid in members(group):
        with contextlib.suppress(OSError):
            name = Path("/proc", str(pid), "comm").read_text().strip()
            held[f"{name} processes"] += 1
            held[f"{name} descriptors"] += len(os.listdir(f"/proc/{pid}/fd"))
    return held


def until_no_more_than(before: Counter[str], group: int, patience_s: float = PATIENCE_S) -> None:
    """Wait until the group holds no more than `before`. Two descriptors of a process may be open for a moment."""
    deadline = time.monotonic() + patience_s
    while excess := {k: n for k, n in holdings(group).items() if n > before[k] + (2 if "descriptors" in k else 0)}:
        assert time.monotonic() < deadline, f"came to stay: {excess}, of {dict(before)} before"
        time.sleep(0.01)
