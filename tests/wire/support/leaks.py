"""What a runtime holds: processes, and what is open in each. Nothing may have come to stay."""

import contextlib
import os
import time
from collections import Counter
from pathlib import Path

from tests.wire.support.mailbox import PATIENCE_S
from tests.wire.support.processes import members


def holdings(group: int) -> Counter[str]:
    """Processes and descriptors by the name of the process."""
    held: Counter[str] = Counter()
    for pid in members(group):
        with contextlib.suppress(OSError):
            name = Path("/proc", str(pid), "comm").read_text().strip()
            held[f"{name} processes"] += 1
            held[f"{name} descriptors"] += len(os.listdir(f"/proc/{pid}/fd"))
    return held


def until_no_more_than(before: Counter[str], group: int, patience_s: float = PATIENCE_S) -> None:
    """Two descriptors of a process may be open just while it is looked at."""
    deadline = time.monotonic() + patience_s
    while excess := {k: n for k, n in holdings(group).items() if n > before[k] + (2 if "descriptors" in k else 0)}:
        assert time.monotonic() < deadline, f"came to stay: {excess}, of {dict(before)} before"
        time.sleep(0.01)
