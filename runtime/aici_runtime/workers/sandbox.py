"""The rights that the spawner, and so every worker, gives up for good before the first guest runs.

WebAssembly is the wall; the sandbox is for the day when the wall has a hole. The sandbox has two stages:

- `enter`, in the spawner: no new rights, no writing of files, no socket to the outside, no program, no other process.
  A fork inherits everything.
- `Sandbox.seal`, in the process of a guest, once the compiled module is loaded and before the guest's first
  instruction: no file at all, no new code, no memory that no limit counts, no capability, not the
  user root, and a limit of processes.

A protection that the kernel lacks is left out; `Sandbox.walls` has the reason.

RLIMIT_DATA is generous, because host functions need memory too. RLIMIT_NPROC counts all processes of the user, so the
limit is set only where guests have a user, or a namespace of users, of their own. RLIMIT_FSIZE is not set: the limit
would hit wasmtime's images of a guest's memory (memfd).
"""

import ctypes
import os
import pwd
import resource
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import orjson

from aici_base.errors import UsageError
from aici_runtime.workers import capabilities, landlock, namespaces, syscall_filter
from aici_runtime.workers.landlock import Landlock

_PR_SET_DUMPABLE, _PR_SET_NO_NEW_PRIVS = 4, 38
_MAX_DESCRIPTORS = 1024
_MAX_PROCESSES = 4096
_ROOM_FOR_THE_HOST_BYTES = 512 * 1024 * 1024
_TO_LOAD = 1 << capabilities.DAC_OVERRIDE | 1 << capabilities.DAC_READ_SEARCH
_TO_CHANGE_USER = 1 << capabilities.SETUID | 1 << capabilities.SETGID
_TO_RULE = _TO_CHANGE_USER | 1 << capabilities.KILL | 1 << capabilities.SYS_NICE
"""Without the last two, the runtime could neither stop nor slow a guest of another user."""


class Wall(NamedTuple):
    """A protection, and why it does not stand; an empty reason: the wall stands."""

    name: str
    reason: str = ""


class Sandbox:
    """What `enter` leaves to `seal`."""

    def __init__(
        self, *, memory_bytes: int, max_guests: int, user: str | None, modules: Path | None, max_processes: int
    ) -> None:
        self.walls: list[Wall] = []
        self._memory_bytes = memory_bytes
        self._base_bytes = _data_bytes() + _ROOM_FOR_THE_HOST_BYTES
        self._max_processes = max_processes
        self._counts_processes = False
        self._becomes: int | None = None
        self._no_files: Landlock | None = None
        self._serving: syscall_filter.SyscallFilter | None = None
        _lower(resource.RLIMIT_DATA, self._base_bytes + max_guests * memory_bytes)
        _lower(resource.RLIMIT_NOFILE, _MAX_DESCRIPTORS)
        _lower(resource.RLIMIT_CORE, 0)
        self._stands("resource limits")
        self._leave_namespaces()
        if user is not None:
            _become(user, modules)
        libc = ctypes.CDLL(None)
        libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        self._stands("no_new_privs")
        self._drop_capabilities(user)
        self._count_processes()
        libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
        self._stands("not dumpable")
        missing = syscall_filter.missing()
        self._refuse_files(modules)
        self._filter(missing)

    def seal(self, *, num_guests: int = 1) -> None:
        """Give up all that only loading a module needs. The process has a single thread, and belongs to so many guests
        from now on."""
        _lower(resource.RLIMIT_DATA, self._base_bytes + num_guests * self._memory_bytes)
        if self._becomes is not None:
            os.setgroups([])
            os.setresgid(self._becomes, self._becomes, self._becomes)
            os.setresuid(self._becomes, self._becomes, self._becomes)
        if self._counts_processes:
            _lower(resource.RLIMIT_NPROC, self._max_processes)
        capabilities.keep_only(0)
        if self._no_files is not None:
            self._no_files.enter()
            self._no_files.close()
        if self._serving is not None:
            self._serving.install()

    def _stands(self, name: str, reason: str = "") -> None:
        self.walls.append(Wall(name, reason))

    def _leave_namespaces(self) -> None:
        self._counts_processes, reason = namespaces.leave_others(capabilities.effective())
        self._stands("namespaces of network and IPC", reason)

    def _drop_capabilities(self, user: str | None) -> None:
        able = capabilities.effective()
        if user is None and os.geteuid() == 0 and able & _TO_RULE == _TO_RULE:
            self._becomes = namespaces.unused_user()
            self._counts_processes = self._becomes is not None
        capabilities.forget_bounding_set()
        capabilities.keep_only(able & (_TO_LOAD | (_TO_CHANGE_USER if self._becomes is not None else 0)))
        self._stands("no capabilities")
        if user is not None or self._becomes is not None:
            self._stands("a user without rights")
        elif os.geteuid() == 0:
            lacks = "root lacks the capabilities SETUID, SETGID, KILL and SYS_NICE, or numbers of users"
            self._stands("a user without rights", lacks)
        else:
            self._stands("a user without rights", "only root can run guests as another user (--worker-user)")

    def _count_processes(self) -> None:
        reason = "" if self._counts_processes else "the limit would count all processes of the user"
        self._stands("a limit of processes", reason)

    def _refuse_files(self, modules: Path | None) -> None:
        abi = landlock.version()
        if abi == 0:
            self._stands("Landlock: no files", "the kernel has no Landlock, or has it switched off")
            return
        rules = Landlock(readable=modules if modules is not None and modules.is_dir() else None)
        rules.enter()
        rules.close()
        self._no_files = Landlock()
        self._stands("Landlock: no files")
        needs = "" if abi >= landlock.SCOPES_SINCE else f"Linux 6.12 has it; this kernel has version {abi} of Landlock"
        self._stands("Landlock: no signals and abstract sockets", needs)

    def _filter(self, missing: str) -> None:
        self._stands("a filter of system calls", missing)
        if not missing:
            self._serving = syscall_filter.serving()
            syscall_filter.loading().install()


def enter(
    *,
    memory_bytes: int,
    max_guests: int = 1,
    user: str | None = None,
    modules: Path | None = None,
    max_processes: int = _MAX_PROCESSES,
) -> Sandbox:
    """Enter the sandbox: this process and all future children, once, while the process has a single thread.

    `memory_bytes`: linear memory of a guest. `max_guests`: guests of a process. `max_processes`: processes
    and threads of all guests together. `modules`: the only folder whose files can still be read, until `seal`.
    Raises UsageError for a `user` who is unknown, whom this process may not become, or who cannot read the folder.
    """
    return Sandbox(
        memory_bytes=memory_bytes, max_guests=max_guests, user=user, modules=modules, max_processes=max_processes
    )


def names(walls: Iterable[Wall]) -> str:
    return ", ".join(wall.name for wall in walls)


def survey() -> list[Wall]:
    """Return the walls of this machine, as a child finds them that enters the sandbox."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            sandbox = enter(memory_bytes=1 << 20)
            sandbox.seal()
            os.write(write_end, orjson.dumps([[*wall] for wall in sandbox.walls]))
        finally:
            os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end, "rb") as said:
        walls = [Wall(*wall) for wall in orjson.loads(said.read() or b"[]")]
    os.waitpid(child, 0)
    return walls


def _data_bytes() -> int:
    """Return the memory of this process that RLIMIT_DATA counts."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line for line in lines if "VmData" in line).split()[1])


def _lower(kind: int, value: int) -> None:
    hard = resource.getrlimit(kind)[1]
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(kind, (value, value))


def _become(name: str, modules: Path | None) -> None:
    try:
        user = pwd.getpwuid(int(name)) if name.isdigit() else pwd.getpwnam(name)
    except KeyError as error:
        hint = "--worker-user takes a name or a number"
        raise UsageError(f"there is no user {name} on this machine", hint=hint) from error
    try:
        os.setgroups([])
        os.setgid(user.pw_gid)
        os.setuid(user.pw_uid)
    except PermissionError as error:
        hint = "without --worker-user, guests run as the user who starts the runtime"
        raise UsageError("--worker-user needs to be started by root", hint=hint) from error
    if modules is not None and not _may_read(modules):
        raise UsageError(
            f"{name} cannot read {modules}", hint="choose another folder with AICI_STORE_DIR or --cache-dir"
        )


def _may_read(folder: Path) -> bool:
    """Return whether the folder, if it existed, could be read."""
    try:
        folder.stat()
    except FileNotFoundError:
        return _may_read(folder.parent)
    except PermissionError:
        return False
    return os.access(folder, os.R_OK | os.X_OK)
