"""The filters of system calls (seccomp): one for the process that loads guests, a narrower one for a guest's process.

A filter is a program in classic BPF: a block per system call, each with a return at the end. Filters add up: a call is
allowed if every filter of the process allows the call.
"""

import ctypes
import os
import platform
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Final

_PR_SET_SECCOMP, _FILTER = 22, 2

_MACHINES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
"""The kernel's numbers of the architectures, in the order of the columns below."""

Numbers = tuple[int | None, int | None]
"""The numbers of a system call for x86-64 and for arm64; None: the architecture lacks the call."""

_ALLOWED: dict[str, Numbers] = {
    # read, write and wait
    "read": (0, 63), "write": (1, 64), "close": (3, 57), "fstat": (5, 80), "lseek": (8, 62), "pread64": (17, 67),
    "pwrite64": (18, 68), "readv": (19, 65), "writev": (20, 66), "ftruncate": (77, 46),
    "dup": (32, 23), "dup3": (292, 24), "pipe2": (293, 59), "poll": (7, None), "ppoll": (271, 73),
    "epoll_create1": (291, 20), "epoll_ctl": (233, 21), "epoll_wait": (232, None), "epoll_pwait": (281, 22),
    "select": (23, None), "pselect6": (270, 72),
    # existing sockets
    "recvfrom": (45, 207), "sendmsg": (46, 211), "recvmsg": (47, 212), "shutdown": (48, 210),
    "getsockname": (51, 204), "getsockopt": (55, 209),
    # memory
    "munmap": (11, 215), "brk": (12, 214), "mremap": (25, 216), "madvise": (28, 233), "membarrier": (324, 283),
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
"""Allowed with any arguments, before a guest is loaded and after."""

_LOADING: dict[str, Numbers] = {
    # files, for reading
    "newfstatat": (262, 79), "statx": (332, 291), "readlinkat": (267, 78), "faccessat": (269, 48),
    "getdents64": (217, 61), "getcwd": (79, 17), "stat": (4, None), "lstat": (6, None), "access": (21, None),
    "readlink": (89, None), "open": (2, None), "openat": (257, 56),
    # memory without a limit
    "memfd_create": (319, 279),
    # giving up rights
    "setresuid": (117, 147), "setresgid": (119, 149), "setgroups": (116, 159), "capset": (126, 91),
    "prlimit64": (302, 261),
    "landlock_restrict_self": (446, 446),
}  # fmt: skip
"""Allowed until a guest is loaded (`serving`)."""

_CLONE: Numbers = (56, 220)
_CLONE3: Numbers = (435, 435)
_OPEN: Numbers = (2, None)
_OPENAT: Numbers = (257, 56)
_SOCKETPAIR: Numbers = (53, 199)
_SENDTO: Numbers = (44, 206)
_FCNTL: Numbers = (72, 25)
_IOCTL: Numbers = (16, 29)
_PRCTL: Numbers = (157, 167)
_NEWFSTATAT: Numbers = (262, 79)
_MMAP: Numbers = (9, 222)
_MPROTECT: Numbers = (10, 226)

_NEW_NAMESPACES, _CLONE_PARENT = 0x7E020080, 0x8000
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
_UNIX, _STREAM = 1, 1
_SOCKET_FLAGS = (0, 0o2000000, 0o4000, 0o2004000)
"""No flag, SOCK_CLOEXEC, SOCK_NONBLOCK, and both."""
_CLOEXEC_AND_NONBLOCK = (0x5450, 0x5451, 0x5421)
_GETFD, _SETFD, _GETFL, _SETFL, _DUPFD_CLOEXEC = 1, 2, 3, 4, 1030
_O_ASYNC = 0o20000
_SET_PDEATHSIG, _SET_NAME, _SET_DUMPABLE, _SET_SECCOMP = 1, 15, 4, 22
_AT_EMPTY_PATH = 0x1000
_PROT_EXEC, _PROT_GROWSDOWN = 0x4, 0x01000000
_MAP_SHARED, _MAP_ANONYMOUS, _MAP_GROWSDOWN = 0x01, 0x20, 0x100

# u16 code, u8 jump if true, u8 jump if false, u32 operand. `struct seccomp_data`: number, architecture, instruction
# pointer, arguments of 8 bytes.
_INSTRUCTION = struct.Struct("<HBBI")
_LOAD, _EQUAL, _ANY_OF, _RETURN = 0x20, 0x15, 0x45, 0x06
_NUMBER_AT, _ARCHITECTURE_AT, _ARGUMENTS_AT = 0, 4, 16
_ALLOW, _REFUSE, _ABSENT, _KILL = 0x7FFF0000, 0x00050001, 0x00050026, 0x80000000
"""Results of a filter: continue; EPERM; ENOSYS; end the process."""

Block = tuple[Numbers, Sequence[bytes]]


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_char_p))


class SyscallFilter:
    """A filter, compiled once and installed by `install` in this process, for good."""

    def __init__(self, code: bytes) -> None:
        self._program = _Program(len(code) // _INSTRUCTION.size, code)
        self._prctl = ctypes.CDLL(None, use_errno=True).prctl

    def install(self) -> None:
        """Install the filter; the process has `no_new_privs` and a single thread. Raises OSError."""
        if self._prctl(_PR_SET_SECCOMP, _FILTER, ctypes.byref(self._program), 0, 0):
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))


def missing() -> str:
    """Return why this machine has no filter of system calls; empty if the machine has one."""
    if platform.machine() not in _MACHINES:
        return f"there is no filter for {platform.machine()}"
    actions = Path("/proc/sys/kernel/seccomp/actions_avail")
    return "" if actions.is_file() and "errno" in actions.read_text().split() else "the kernel has no seccomp"


def loading() -> SyscallFilter:
    """Return the filter of the process that forks all guests: files can be read, rights can be given up."""
    blocks: list[Block] = [(numbers, [_return(_ALLOW)]) for numbers in (_ALLOWED | _LOADING).values()]
    opening: Final = (_OPEN, _OPENAT)
    blocks = [block for block in blocks if block[0] not in opening]
    blocks += [
        # The flags of clone3 lie in memory, invisible to the filter; glibc then falls back to clone.
        (_CLONE3, [_return(_ABSENT)]),
        (_CLONE, [*_if(0, _ANY_OF, [_NEW_NAMESPACES, _CLONE_PARENT], _REFUSE), _return(_ALLOW)]),
        (_OPENAT, [*_if(2, _ANY_OF, [_WRITING], _REFUSE), _return(_ALLOW)]),
        (_OPEN, [*_if(1, _ANY_OF, [_WRITING], _REFUSE), _return(_ALLOW)]),
        # A datagram socket could send to any socket of the machine that has a path: sendmsg names it in memory.
        (
            _SOCKETPAIR,
            [
                *_unless(0, _EQUAL, _UNIX, _REFUSE),
                *_if(1, _EQUAL, [_STREAM | flags for flags in _SOCKET_FLAGS], _ALLOW),
                _return(_REFUSE),
            ],
        ),
        (
            _SENDTO,
            [*_unless(4, _EQUAL, 0, _REFUSE), *_unless(4, _EQUAL, 0, _REFUSE, upper=True), _return(_ALLOW)],
        ),
        # F_SETOWN, F_SETSIG and O_ASYNC together make the kernel send any signal to any process of the user.
        (
            _FCNTL,
            [
                *_if(1, _EQUAL, [_GETFD, _SETFD, _GETFL, _DUPFD_CLOEXEC], _ALLOW),
                *_unless(1, _EQUAL, _SETFL, _REFUSE),
                *_if(2, _ANY_OF, [_O_ASYNC], _REFUSE),
                _return(_ALLOW),
            ],
        ),
        (_IOCTL, [*_if(1, _EQUAL, _CLOEXEC_AND_NONBLOCK, _ALLOW), _return(_REFUSE)]),
        (
            _PRCTL,
            [*_if(0, _EQUAL, [_SET_PDEATHSIG, _SET_NAME, _SET_DUMPABLE, _SET_SECCOMP], _ALLOW), _return(_REFUSE)],
        ),
        (_MMAP, [_return(_ALLOW)]),
        (_MPROTECT, [_return(_ALLOW)]),
    ]
    return _compile(blocks, otherwise=_REFUSE)


def serving() -> SyscallFilter:
    """Return the further filter of a process with a guest: no file, no new code, no memory that no limit counts."""
    blocks: list[Block] = [(numbers, [_return(_REFUSE)]) for name, numbers in _LOADING.items() if name != "newfstatat"]
    blocks += [
        # With the flag, the call is the fstat of newer C libraries. Hostile code can still ask whether a path exists.
        (_NEWFSTATAT, [*_unless(3, _ANY_OF, _AT_EMPTY_PATH, _REFUSE), _return(_ALLOW)]),
        (_PRCTL, [*_if(0, _EQUAL, [_SET_PDEATHSIG, _SET_NAME], _ALLOW), _return(_REFUSE)]),
        # RLIMIT_DATA counts neither shared memory nor stacks.
        (
            _MMAP,
            [
                *_if(2, _ANY_OF, [_PROT_EXEC], _REFUSE),
                *_if(3, _ANY_OF, [_MAP_GROWSDOWN], _REFUSE),
                *_unless(3, _ANY_OF, _MAP_ANONYMOUS, _ALLOW),
                *_if(3, _ANY_OF, [_MAP_SHARED], _REFUSE),
                _return(_ALLOW),
            ],
        ),
        (_MPROTECT, [*_if(2, _ANY_OF, [_PROT_EXEC, _PROT_GROWSDOWN], _REFUSE), _return(_ALLOW)]),
    ]
    return _compile(blocks, otherwise=_ALLOW)


def _compile(blocks: Sequence[Block], *, otherwise: int) -> SyscallFilter:
    """`otherwise`: the result for calls without a block. Calls of another architecture end the process; the calls of
    x32 have numbers of their own."""
    column = list(_MACHINES).index(platform.machine())
    code = [
        _INSTRUCTION.pack(_LOAD, 0, 0, _ARCHITECTURE_AT),
        _INSTRUCTION.pack(_EQUAL, 1, 0, list(_MACHINES.values())[column]),
        _return(_KILL),
        _INSTRUCTION.pack(_LOAD, 0, 0, _NUMBER_AT),
    ]
    for numbers, body in blocks:
        if (number := numbers[column]) is not None:
            code += [_INSTRUCTION.pack(_EQUAL, 0, len(body), number), *body]
    return SyscallFilter(b"".join((*code, _return(otherwise))))


def _return(result: int) -> bytes:
    return _INSTRUCTION.pack(_RETURN, 0, 0, result)


def _if(argument: int, test: int, operands: Sequence[int], result: int) -> list[bytes]:
    """Return `result` if the lower half of the argument passes the test with one of the operands."""
    code = [_load(argument)]
    for operand in operands:
        code += [_INSTRUCTION.pack(test, 0, 1, operand), _return(result)]
    return code


def _unless(argument: int, test: int, operand: int, result: int, *, upper: bool = False) -> list[bytes]:
    """Return `result` if the half of the argument does not pass the test."""
    return [_load(argument, upper=upper), _INSTRUCTION.pack(test, 1, 0, operand), _return(result)]


def _load(argument: int, *, upper: bool = False) -> bytes:
    return _INSTRUCTION.pack(_LOAD, 0, 0, _ARGUMENTS_AT + 8 * argument + 4 * upper)
