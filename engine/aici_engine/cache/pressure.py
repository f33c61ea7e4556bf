"""Hear of memory pressure: the kernel says when processes wait for memory (PSI, `/proc/pressure/memory`).

Two places say so: the machine, and the process's own control group (cgroup v2), which waits when the group comes to its
`memory.high` or `memory.max`. Nothing polls: a thread sleeps until the kernel wakes it.
"""

import contextlib
import os
import select
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

_TRIGGER: Final = b"some 100000 2000000\0"
"""Processes waited for memory for 100 ms of 2 s, together. 2 s is the shortest window without privileges."""


@contextlib.contextmanager
def watching(on_pressure: Callable[[], None], root: Path = Path("/")) -> Iterator[None]:
    """Call `on_pressure` on a thread, at most every 2 s for a place, while memory is short.

    Without PSI (an old kernel, or `psi=0`) `on_pressure` is never called. `root`: the folder that contains /proc and
    /sys.
    """
    with contextlib.ExitStack() as stack:
        triggers = [descriptor for path in _places(root) if (descriptor := _open_trigger(path)) is not None]
        for descriptor in triggers:
            stack.callback(os.close, descriptor)
        if triggers:
            stack.enter_context(calling(on_pressure, triggers))
        yield


@contextlib.contextmanager
def calling(on_pressure: Callable[[], None], triggers: list[int]) -> Iterator[None]:
    """Call `on_pressure` on a thread whenever a descriptor of `triggers` has an urgent event."""
    stop, stopping = os.pipe()
    thread = threading.Thread(target=_wait, args=(on_pressure, triggers, stop), name="aici-pressure", daemon=True)
    thread.start()
    try:
        yield
    finally:
        os.close(stopping)
        thread.join()
        os.close(stop)


def _wait(on_pressure: Callable[[], None], triggers: list[int], stop: int) -> None:
    poller = select.poll()
    for descriptor in triggers:
        poller.register(descriptor, select.POLLPRI)
    poller.register(stop, select.POLLIN)
    while True:
        events = dict(poller.poll())
        if stop in events:
            return
        for descriptor, event in events.items():
            if event & select.POLLPRI:
                on_pressure()
            else:  # the control group is gone
                poller.unregister(descriptor)


def _places(root: Path) -> Iterator[Path]:
    """Yield the files that say how long processes wait for memory: of the machine, and of the own control group."""
    yield root / "proc/pressure/memory"
    with contextlib.suppress(OSError):
        for line in (root / "proc/self/cgroup").read_text().splitlines():
            if line.startswith("0::"):
                yield root / "sys/fs/cgroup" / line[3:].lstrip("/") / "memory.pressure"


def _open_trigger(path: Path) -> int | None:
    """Ask the kernel to wake us. None if the file is missing, or the kernel refuses."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        os.write(descriptor, _TRIGGER)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor
