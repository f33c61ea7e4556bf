"""The processes of a runtime as seen from outside: by process group, and by names as `ps` shows."""

import contextlib
import glob
import os
from multiprocessing.connection import wait
from pathlib import Path

from tests.wire.support.mailbox import PATIENCE_S, until


def members(group: int, name: str = "") -> list[int]:
    """Return the live processes of a group, optionally only those with the given name."""
    found = []
    for path in glob.glob("/proc/[0-9]*/stat"):
        with contextlib.suppress(OSError):
            before, _, after = Path(path).read_text().rpartition(")")
            fields = after.split()
            if int(fields[2]) == group and fields[0] != "Z" and name in ("", before.partition("(")[2]):
                found.append(int(path.split("/")[2]))
    return found


def until_gone(group: int, name: str = "", patience_s: float = PATIENCE_S) -> None:
    until(lambda: not members(group, name), patience_s)


def until_ended(pid: int, patience_s: float) -> None:
    """Wait for a process that is not a child."""
    with contextlib.suppress(ProcessLookupError):
        pidfd = os.pidfd_open(pid)
        try:
            assert wait([pidfd], patience_s), f"process {pid} lives"
        finally:
            os.close(pidfd)
