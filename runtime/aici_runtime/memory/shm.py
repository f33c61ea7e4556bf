"""POSIX shared memory and named semaphores: create (engine), attach (runtime), unlink, sweep."""

import contextlib
import os
import re
from mmap import mmap
from pathlib import Path

import posix_ipc

from aici_base.errors import UsageError

Region = mmap
"""A mapped shared object. `close` unmaps the object; the name is unlinked separately."""

_SHM_DIR = Path("/dev/shm")
_OURS = re.compile(r"^(?:sem\.)?aici-(\d+)-([0-9a-f]+)-[0-9a-f]+-")


def create_region(name: str, size_bytes: int) -> mmap:
    """Create a zeroed region. A stale region of the same name is unlinked first, as in every engine."""
    with contextlib.suppress(posix_ipc.ExistentialError):
        posix_ipc.unlink_shared_memory(name)
    return _map(posix_ipc.SharedMemory(name, flags=posix_ipc.O_CREX, mode=0o600, size=size_bytes), size_bytes)


def attach_region(name: str, size_bytes: int, *, create: bool = True) -> mmap:
    """Attach to a region, or create the region if the other side has not. Without `create`, a missing name is refused.

    A region of a different size is refused too: either side would end in SIGBUS.
    """
    try:
        shared = posix_ipc.SharedMemory(name, flags=posix_ipc.O_CREAT if create else 0, mode=0o666)
    except posix_ipc.ExistentialError as error:
        raise UsageError(
            f"there is no shared object {name}", hint="the engine creates the object; only one runtime can attach"
        ) from error
    found = os.fstat(shared.fd).st_size
    if found == 0:
        os.ftruncate(shared.fd, size_bytes)
    elif found != size_bytes:
        shared.close_fd()
        raise UsageError(
            f"{name} has {found} bytes, not {size_bytes}", hint="give both sides the same --json-size and --bin-size"
        )
    return _map(shared, size_bytes)


def _map(shared: posix_ipc.SharedMemory, size_bytes: int) -> mmap:
    try:
        return mmap(shared.fd, size_bytes)
    finally:
        shared.close_fd()


def create_semaphore(name: str, initial: int) -> posix_ipc.Semaphore:
    """Create a named semaphore. A stale one of the same name is unlinked first."""
    with contextlib.suppress(posix_ipc.ExistentialError):
        posix_ipc.unlink_semaphore(name)
    return posix_ipc.Semaphore(name, flags=posix_ipc.O_CREX, mode=0o600, initial_value=initial)


def attach_semaphore(name: str, initial: int) -> posix_ipc.Semaphore:
    """Attach to a named semaphore, or create the semaphore if the other side has not."""
    return posix_ipc.Semaphore(name, flags=posix_ipc.O_CREAT, mode=0o666, initial_value=initial)


def unlink_region(name: str) -> None:
    """Remove the name of a region, if present."""
    with contextlib.suppress(posix_ipc.ExistentialError):
        posix_ipc.unlink_shared_memory(name)


def unlink_semaphore(name: str) -> None:
    """Remove the name of a semaphore, if present."""
    with contextlib.suppress(posix_ipc.ExistentialError):
        posix_ipc.unlink_semaphore(name)


def unique_prefix() -> str:
    """Return `/aici-{pid}-{pid namespace}-{random}-`, from which `sweep` finds the process."""
    return f"/aici-{os.getpid()}-{_pid_namespace()}-{os.urandom(4).hex()}-"


def _pid_namespace() -> str:
    """Return the pid namespace. Containers may share /dev/shm but not pids, so a pid is valid in its namespace only."""
    return f"{os.stat('/proc/self/ns/pid').st_ino:x}"


def sweep() -> None:
    """Remove the shared objects of engines killed between creating the objects and unlinking the names."""
    here = _pid_namespace()
    for entry in os.scandir(_SHM_DIR):
        match = _OURS.match(entry.name)
        if match is not None and match[2] == here and not Path("/proc", match[1]).exists():
            with contextlib.suppress(OSError):
                os.unlink(entry.path)
