"""The priority, the cores, the processor time and the state of a worker.

A late worker computes mostly with what others leave. A lowered worker has a tenth of the usual weight, and not less: an
honest guest that is slow must get to its end on a busy machine too. Only a process with CAP_SYS_NICE may raise a
priority; without, a lowered worker stays lowered.
"""

import contextlib
import os
from pathlib import Path

from aici_runtime.workers import capabilities

_NICE, _LOWEST = 10, 19


def lower(pid: int) -> None:
    """Lower the priority of the process's main thread, in which guests run."""
    with contextlib.suppress(OSError):  # the process has ended
        os.setpriority(os.PRIO_PROCESS, pid, os.getpriority(os.PRIO_PROCESS, 0) + _NICE)


def lower_for_end(pid: int) -> None:
    """Lower the priority before the process is killed: the end takes a millisecond, for which nobody waits."""
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, pid, _LOWEST)


def can_restore() -> bool:
    """Return whether this process may raise a priority that it has lowered."""
    return bool(capabilities.effective() >> capabilities.SYS_NICE & 1)


def restore(pid: int) -> bool:
    """Give back the usual priority. Return whether that was possible."""
    try:
        os.setpriority(os.PRIO_PROCESS, pid, os.getpriority(os.PRIO_PROCESS, 0))
    except OSError:
        return False
    return True


def keep_to(pid: int, cores: frozenset[int]) -> None:
    """Let the process's main thread run on these cores alone."""
    with contextlib.suppress(OSError):  # the process has ended, or belongs to another user
        os.sched_setaffinity(pid, cores)


def is_stopped(pid: int) -> bool:
    """Return whether a signal or a debugger has stopped the process."""
    try:
        status = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return False
    return status.rpartition(b") ")[2][:1] in (b"T", b"t")


def cpu_clock(pid: int) -> int:
    """Return the number of the clock that counts the processor time of a process, all threads together."""
    return ~pid << 3 | 2  # as clock_getcpuclockid(3) makes it


def pid_of(pidfd: int) -> int:
    """Return the pid behind a pidfd; -1 if the process is gone, 0 if it has no number here, or for another file."""
    try:
        descriptor = os.open(f"/proc/self/fdinfo/{pidfd}", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return 0
    try:
        return int(os.read(descriptor, 4096).partition(b"Pid:")[2].split(b"\n")[0] or b"0")
    finally:
        os.close(descriptor)
