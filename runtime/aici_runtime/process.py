"""Helpers for Linux processes: names, pidfds, signals, children that die with their parent. Independent of
controllers."""

import _thread
import contextlib
import ctypes
import functools
import logging
import os
import resource
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
    """Return the C library. Loaded once and inherited by forks, because loading takes a quarter of a millisecond."""
    return ctypes.CDLL(None)


def set_name(name: str) -> None:
    """Set the name in `ps -o comm`, of at most 15 bytes."""
    _libc().prctl(_PR_SET_NAME, name.encode(), 0, 0, 0)


def adopt_orphans() -> None:
    """Become the parent of every descendant with a dead parent, so that somebody reaps the descendant."""
    _libc().prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def die_with_parent(parent: int) -> None:
    """Let the kernel kill this child when the parent ends. To be called after a fork by the parent's main thread."""
    _libc().prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(0)


def outlive_parent() -> None:
    _libc().prctl(_PR_SET_PDEATHSIG, 0, 0, 0, 0)


def give_back_memory() -> None:
    """Return freed memory to the kernel: after work that took much, and before forks, which copy page tables."""
    with contextlib.suppress(AttributeError):  # missing in some C libraries
        _libc().malloc_trim(0)


def raise_descriptors() -> None:
    """Raise the limit of descriptors to the maximum. The usual limit suits programs with select()."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def kill(pidfd: int, number: int = signal.SIGKILL) -> None:
    """Send a signal by pidfd, which cannot hit a different process with a reused pid. A dead process is fine."""
    with contextlib.suppress(ProcessLookupError):
        signal.pidfd_send_signal(pidfd, number)


def has_ended(pidfd: int, timeout_s: float = 0.0) -> bool:
    poller = select.poll()
    poller.register(pidfd, select.POLLIN)
    return bool(poller.poll(timeout_s * 1000))


def start_thread(body: Callable[[], None], *, stack_bytes: int = _THREAD_STACK_BYTES) -> None:
    """Start a daemon thread with a small stack, for a thread asleep in a single system call all its life.

    Only for processes wholly under our control: for a moment, new threads elsewhere in the process would get the small
    stack too. The thread lacks the bookkeeping of `threading`, which takes a third of a millisecond after a fork.
    """
    previous = _thread.stack_size(stack_bytes)
    try:
        _thread.start_new_thread(body, ())
    finally:
        _thread.stack_size(previous)


def forget_threads() -> None:
    """Skip the work of `threading` and `logging` after forks, in a process without such threads and in its forks.

    The work takes two thirds of a millisecond per fork and writes to 800 KB of memory shared until then. No thread logs
    during a fork, so `logging` need not replace its locks: the fork gives back the lock taken before.
    """
    after_fork = getattr(threading, "_after_fork", None)
    if after_fork is not None:
        after_fork.__code__ = (lambda: None).__code__
    reinit, release = (getattr(logging, name, None) for name in ("_after_at_fork_child_reinit_locks", "_releaseLock"))
    if reinit is not None and release is not None:
        reinit.__code__ = release.__code__


def die_with(pidfd: int) -> None:
    """End this process as soon as the process behind `pidfd` ends, whatever other threads do."""

    def watch() -> None:
        has_ended(pidfd, timeout_s=-0.001)  # negative: for ever
        os._exit(0)

    start_thread(watch)


def default_signals() -> None:
    """Reset the signal handlers in a forked child: inherited handlers would write to the parent's wake-up pipe."""
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, signal.SIG_DFL)
    for number in (signal.SIGINT, signal.SIGPIPE, signal.SIGCHLD):  # SIGCHLD ignored: the kernel reaps
        signal.signal(number, signal.SIG_IGN)


def fork_child(body: Callable[[], None]) -> int:
    """Run `body` in a child, which ends afterwards and never returns into the parent's code. Return the child's pid."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # the parent's other threads sleep in system calls
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
