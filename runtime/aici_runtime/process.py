"""Small facts about Linux processes: names, pidfds, dying together. Knows nothing of controllers."""

import contextlib
import ctypes
import os
import select
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Callable

from aici_runtime.errors import AiciError

_PR_SET_NAME = 15
_PR_SET_CHILD_SUBREAPER = 36
_THREAD_STACK_BYTES = 256 * 1024


def set_name(name: str) -> None:
    """What `ps -o comm` shows; at most 15 bytes count."""
    ctypes.CDLL(None).prctl(_PR_SET_NAME, name.encode(), 0, 0, 0)


def adopt_orphans() -> None:
    """Become the parent of every descendant whose parent dies, so that somebody reaps it."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def kill(pidfd: int, number: int = signal.SIGKILL) -> None:
    """A signal by pidfd can never hit a stranger that got the same pid. Gone already is fine."""
    with contextlib.suppress(ProcessLookupError):
        signal.pidfd_send_signal(pidfd, number)


def has_ended(pidfd: int, timeout_s: float = 0.0) -> bool:
    poller = select.poll()
    poller.register(pidfd, select.POLLIN)
    return bool(poller.poll(timeout_s * 1000))


def start_thread(name: str, body: Callable[[], None], *, stack_bytes: int = _THREAD_STACK_BYTES) -> threading.Thread:
    """A daemon with a small stack: these threads sleep in one system call for all their life. Only for processes that
    are wholly ours: for a moment, new threads elsewhere in the process would get this stack too."""
    previous = threading.stack_size(stack_bytes)
    try:
        thread = threading.Thread(target=body, name=name, daemon=True)
        thread.start()
    finally:
        threading.stack_size(previous)
    return thread


def die_with(pidfd: int) -> None:
    """End this process as soon as the process behind `pidfd` has ended, whatever the other threads do."""

    def watch() -> None:
        has_ended(pidfd, timeout_s=-0.001)  # negative: for ever
        os._exit(0)

    start_thread("die-with", watch)


def default_signals() -> None:
    """What a forked child must not inherit from its parent: handlers that write to the parent's wake-up pipe."""
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, signal.SIG_DFL)
    for number in (signal.SIGINT, signal.SIGPIPE, signal.SIGCHLD):  # the last: the kernel reaps
        signal.signal(number, signal.SIG_IGN)


def fork_child(body: Callable[[], None]) -> int:
    """Run `body` in a child that can never come back into the parent's code. Returns the child's pid."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # the other threads of a parent sleep in system calls
        pid = os.fork()
    if pid != 0:
        return pid
    code = 70
    try:
        default_signals()
        body()
        code = 0
    except AiciError as error:
        sys.stderr.write(f"error: {error.message}\n")
    except BaseException:  # noqa: BLE001  the end of a process: report and leave
        traceback.print_exc()
    finally:
        os._exit(code)
