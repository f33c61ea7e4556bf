"""The rights that the spawner, and so every worker, gives up for good before the first guest runs.

WebAssembly is the wall; the sandbox is for the day when the wall has a hole. A process with guests cannot gain rights,
open a file for writing, make a socket to the outside, start a program, or touch other processes. A protection that the
kernel lacks is left out; `describe` lists the active ones. A fork inherits everything, so nothing is set per worker.

RLIMIT_DATA is generous, because host functions need memory too. Two limits are not set: RLIMIT_NPROC would count all
processes of the user, and RLIMIT_FSIZE would hit wasmtime's images of a guest's memory (memfd).
"""

import ctypes
import os
import platform
import pwd
import resource
import struct
from collections.abc import Sequence
from pathlib import Path

from aici_base.errors import UsageError

_PR_SET_NO_NEW_PRIVS = 38
_PR_SET_SECCOMP, _FILTER = 22, 2
_MAX_DESCRIPTORS = 1024
_ROOM_FOR_THE_HOST_BYTES = 512 * 1024 * 1024

_MACHINES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
"""The kernel's numbers of the architectures, in the order of the columns below."""

_Numbers = tuple[int | None, int | None]
_ALLOWED: dict[str, _Numbers] = {
    # read, write and wait
    "read": (0, 63), "write": (1, 64), "close": (3, 57), "fstat": (5, 80), "lseek": (8, 62), "pread64": (17, 67),
    "pwrite64": (18, 68), "readv": (19, 65), "writev": (20, 66), "ftruncate": (77, 46), "fcntl": (72, 25),
    "dup": (32, 23), "dup3": (292, 24), "pipe2": (293, 59), "poll": (7, None), "ppoll": (271, 73),
    "epoll_create1": (291, 20), "epoll_ctl": (233, 21), "epoll_wait": (232, None), "epoll_pwait": (281, 22),
    "newfstatat": (262, 79), "statx": (332, 291), "readlinkat": (267, 78), "faccessat": (269, 48),
    "getdents64": (217, 61), "getcwd": (79, 17), "stat": (4, None), "lstat": (6, None), "access": (21, None),
    "readlink": (89, None), "select": (23, None), "pselect6": (270, 72),
    # existing sockets
    "sendto": (44, 206), "recvfrom": (45, 207), "sendmsg": (46, 211), "recvmsg": (47, 212), "shutdown": (48, 210),
    "getsockname": (51, 204), "getsockopt": (55, 209),
    # memory
    "mmap": (9, 222), "mprotect": (10, 226), "munmap": (11, 215), "brk": (12, 214), "mremap": (25, 216),
    "madvise": (28, 233), "memfd_create": (319, 279), "membarrier": (324, 283),
    # threads, signals to the process itself, time
    "futex": (202, 98), "set_robust_list": (273, 99), "rseq": (334, 293), "set_tid_address": (218, 96),
    "sched_yield": (24, 124), "sched_getaffinity": (204, 123), "gettid": (186, 178), "getpid": (39, 172),
    "getppid": (110, 173), "getuid": (102, 174), "geteuid": (107, 175), "getgid": (104, 176), "getegid": (108, 177),
    "rt_sigaction": (13, 134), "rt_sigprocmask": (14, 135), "rt_sigreturn": (15, 139), "sigaltstack": (131, 132),
    "nanosleep": (35, 101), "clock_nanosleep": (230, 115), "clock_gettime": (228, 113), "clock_getres": (229, 114),
    "gettimeofday": (96, 169), "restart_syscall": (219, 128), "getrandom": (318, 278), "uname": (63, 160),
    "getrlimit": (97, 163), "sysinfo": (99, 179), "wait4": (61, 260), "pidfd_open": (434, 434),
    "exit": (60, 93), "exit_group": (231, 94),
}  # fmt: skip
"""The numbers for x86-64 and for arm64."""

_CLONE: _Numbers = (56, 220)
_CLONE3: _Numbers = (435, 435)
_OPEN: _Numbers = (2, None)
_OPENAT: _Numbers = (257, 56)
_SOCKETPAIR: _Numbers = (53, 199)
_IOCTL: _Numbers = (16, 29)
_PRCTL: _Numbers = (157, 167)

_NEW_NAMESPACES = 0x7E020080
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
_UNIX = 1
_CLOEXEC_AND_NONBLOCK = (0x5450, 0x5451, 0x5421)
_SET_PDEATHSIG, _SET_NAME = 1, 15

# Classic BPF: u16 code, u8 jump if true, u8 jump if false, u32 operand. `struct seccomp_data`: number, architecture,
# instruction pointer, arguments of 8 bytes.
_INSTRUCTION = struct.Struct("<HBBI")
_LOAD, _EQUAL, _ANY_OF, _RETURN = 0x20, 0x15, 0x45, 0x06
_NUMBER_AT, _ARCHITECTURE_AT, _ARGUMENTS_AT = 0, 4, 16
_ALLOW, _REFUSE, _ABSENT, _KILL = 0x7FFF0000, 0x00050001, 0x00050026, 0x80000000
"""Results of a filter: continue; EPERM; ENOSYS; end the process."""


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_char_p))


def enter(*, memory_bytes: int, user: str | None = None, modules: Path | None = None) -> None:
    """Enter the sandbox: this process and all future children, once, while the process has a single thread.

    `memory_bytes`: linear memory of a guest. Raises UsageError for a `user` who is unknown, whom this process may not
    become, or who cannot read the folder `modules`.
    """
    _limit(memory_bytes)
    if user is not None:
        _become(user, modules)
    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    if platform.machine() in _MACHINES:
        code = _filter(list(_MACHINES).index(platform.machine()))
        program = _Program(len(code) // _INSTRUCTION.size, code)
        libc.prctl(_PR_SET_SECCOMP, _FILTER, ctypes.byref(program), 0, 0)


def _filter(column: int) -> bytes:
    """Return the filter: a block per system call, each with a return at the end. Unlisted calls are refused."""
    code = [
        _INSTRUCTION.pack(_LOAD, 0, 0, _ARCHITECTURE_AT),
        _INSTRUCTION.pack(_EQUAL, 1, 0, list(_MACHINES.values())[column]),
        _INSTRUCTION.pack(_RETURN, 0, 0, _KILL),
        _INSTRUCTION.pack(_LOAD, 0, 0, _NUMBER_AT),
    ]

    def block(numbers: _Numbers, *body: bytes) -> None:
        number = numbers[column]
        if number is not None:
            code.extend((_INSTRUCTION.pack(_EQUAL, 0, len(body), number), *body))

    for numbers in _ALLOWED.values():
        block(numbers, _return(_ALLOW))
    block(_CLONE3, _return(_ABSENT))  # the flags lie in memory, invisible to the filter; glibc then falls back to clone
    block(_CLONE, *_unless(0, _ANY_OF, [_NEW_NAMESPACES]))
    block(_OPENAT, *_unless(2, _ANY_OF, [_WRITING]))
    block(_OPEN, *_unless(1, _ANY_OF, [_WRITING]))
    block(_SOCKETPAIR, *_only(0, [_UNIX]))
    block(_IOCTL, *_only(1, _CLOEXEC_AND_NONBLOCK))
    block(_PRCTL, *_only(0, [_SET_PDEATHSIG, _SET_NAME]))
    return b"".join((*code, _return(_REFUSE)))


def _return(value: int) -> bytes:
    return _INSTRUCTION.pack(_RETURN, 0, 0, value)


def _unless(argument: int, test: int, operands: Sequence[int]) -> list[bytes]:
    return _decide(argument, test, operands, _REFUSE, _ALLOW)


def _only(argument: int, operands: Sequence[int]) -> list[bytes]:
    return _decide(argument, _EQUAL, operands, _ALLOW, _REFUSE)


def _decide(argument: int, test: int, operands: Sequence[int], then: int, otherwise: int) -> list[bytes]:
    """Compare the lower half of an argument, which comes first: all tested arguments have 32 bits."""
    code = [_INSTRUCTION.pack(_LOAD, 0, 0, _ARGUMENTS_AT + 8 * argument)]
    for operand in operands:
        code += [_INSTRUCTION.pack(test, 0, 1, operand), _return(then)]
    return [*code, _return(otherwise)]


def describe() -> str:
    """Return the protections that are active on this machine, as text."""
    return ", ".join(["a filter of system calls"] * _has_seccomp() + ["no_new_privs", "resource limits"])


def _has_seccomp() -> bool:
    actions = Path("/proc/sys/kernel/seccomp/actions_avail")
    return platform.machine() in _MACHINES and actions.is_file() and "errno" in actions.read_text().split()


def _limit(memory_bytes: int) -> None:
    data = int(next(line for line in Path("/proc/self/status").read_text().splitlines() if "VmData" in line).split()[1])
    _lower(resource.RLIMIT_DATA, data * 1024 + memory_bytes + _ROOM_FOR_THE_HOST_BYTES)
    _lower(resource.RLIMIT_NOFILE, _MAX_DESCRIPTORS)
    _lower(resource.RLIMIT_CORE, 0)


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
