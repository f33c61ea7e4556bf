"""Whether a process is the worker that it says, and can be watched."""

import contextlib
import logging
import os
import signal

from aici_runtime.supervision import worker_priority
from aici_runtime.supervision.worker_handle import WorkerHandle

_log = logging.getLogger(__name__)


def watchable(pid: int, parent: WorkerHandle | None) -> int:
    """Return a pidfd of a fork, or -1: the fork is dead, or not a child of `parent`, or, without a descriptor, killed
    here."""
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return -1
    except OSError:
        kill_unwatched(pid)
        return -1
    if parent is not None and not _is_child(pid, parent.pidfd):
        os.close(pidfd)
        return -1
    return pidfd


def is_of(pidfd: int, pid: int) -> bool:
    """Whether the descriptor is of this process, or of a dead process, or missing."""
    return pidfd < 0 or worker_priority.pid_of(pidfd) in (pid, -1)


def _is_child(pid: int, parent_pidfd: int) -> bool:
    try:
        parent = int(_text(f"/proc/{pid}/stat").rpartition(b")")[2].split(maxsplit=2)[1])
    except OSError:
        return False
    return parent_pidfd >= 0 and parent == worker_priority.pid_of(parent_pidfd)


def _text(path: str) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(descriptor, 4096)
    finally:
        os.close(descriptor)


def kill_unwatched(pid: int) -> None:
    """Kill a process without a pidfd: nobody could watch such a process."""
    _log.warning("no file descriptor is left for another guest; raise the limit (ulimit -n)")
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
