"""Small facts about Linux processes: names, pidfds, dying together. Knows nothing of controllers."""

import _thread
import contextlib
import ctypes
import functools
import os
import select
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Callable

from aici_base.errors import AiciError

_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
_PR_SET_CHILD_SUBREAPER = 36
_THREAD_STACK_BYTES = 256 * 1024


@functools.cache
def _libc() -> ctypes.CDLL:
    """Made once, and inherited: making one takes a quarter of a millisecond."""
    return ctypes.CDLL(None)


def set_name(name: str) -> None:
    """What `ps -o comm` shows; at most 15 bytes count."""
    _libc().prctl(_PR_SET_NAME, name.encode(), 0, 0, 0)


def adopt_orphans() -> None:
    """Become the parent of every descendant whose parent dies, so that somebody reaps it."""
    _libc().prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def die_with_parent(parent: int) -> None:
    """To be called by a child of the process `parent`, whose main thread has forked it. SIGKILL, whatever it does."""
    _libc().prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(0)


def outlive_parent() -> None:
    _libc().prctl(_PR_SET_PDEATHSIG, 0, 0, 0, 0)


def give_back_memory() -> None:
    """What this process has freed and still holds: each fork would copy its page tables."""
    with contextlib.suppress(AttributeError):  # not every C library can
        _libc().malloc_trim(0)


def kill(pidfd: int, number: int = signal.SIGKILL) -> None:
    """A signal by pidfd can never hit a stranger that got the same pid. Gone already is fine."""
    with contextlib.suppress(ProcessLookupError):
        signal.pidfd_send_signal(pidfd, number)


def has_ended(pidfd: int, timeout_s: float = 0.0) -> bool:
    poller = select.poll()
    poller.register(pidfd, select.POLLIN)
    return bool(poller.poll(timeout_s * 1000))


def start_thread(body: Callable[[], None], *, stack_bytes: int = _THREAD_STACK_BYTES) -> None:
    """A daemon with a small stack: these threads sleep in one system call for all their life. Only for processes that
    are wholly ours: for a moment, new threads elsewhere in the process would get this stack too.

    Without the bookkeeping of `threading`, which takes a third of a millisecond in a process that has just been forked.
    """
    previous = _thread.stack_size(stack_bytes)
    try:
        _thread.start_new_thread(body, ())
    finally:
        _thread.stack_size(previous)


def forget_threads() -> None:
    """For a process that has no thread of `threading`, and its forks: what that module does in each fork takes a third
    of a millisecond, and writes to 400 KB that were shared until then."""
    after_fork = getattr(threading, "_after_fork", None)
    if after_fork is not None:
        after_fork.__code__ = (lambda: None).__code__


def die_with(pidfd: int) -> None:
    """End this process as soon as the process behind `pidfd` has ended, whatever the other threads do."""

    def watch() -> None:
        has_ended(pidfd, timeout_s=-0.001)  # negative: for ever
        os._exit(0)

    start_thread(watch)


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
