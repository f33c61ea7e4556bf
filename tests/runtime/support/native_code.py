"""What native code in a guest's process may try. Run there by `hostile_runtime.py`, in the real process and sandbox.

An attempt returns its spoils, or raises OSError or another error: something has stopped the attempt.
"""

import ctypes
import errno
import gc
import mmap
import os
import platform
import resource
import select
import signal
import socket
from collections.abc import Callable
from pathlib import Path

import orjson

from aici_runtime.workers import worker_replies
from aici_runtime.workers.guest_server import GuestServer

_libc = ctypes.CDLL(None, use_errno=True)
_COLUMN = ["x86_64", "aarch64"].index(platform.machine()) if platform.machine() in ("x86_64", "aarch64") else 0
_NUMBERS = {
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "shmget": (29, 194), "io_uring_setup": (425, 425),
    "bpf": (321, 280), "perf_event_open": (298, 241), "userfaultfd": (323, 282), "keyctl": (250, 219),
    "unshare": (272, 97), "mount": (165, 40), "init_module": (175, 105), "tgkill": (234, 131), "setns": (308, 268),
    "pidfd_getfd": (438, 438), "chroot": (161, 51), "mq_open": (240, 180), "landlock_create_ruleset": (444, 444),
    "sched_setaffinity": (203, 122), "setpriority": (141, 140), "memfd_secret": (447, 447), "fork": (57, -1),
    "clone3": (435, 435), "clone": (56, 220), "prctl": (157, 167), "rt_sigqueueinfo": (129, 138), "kcmp": (312, 272),
}  # fmt: skip
_F_SETSIG = 10
_FORKS = 1000


def call(name: str, *arguments: object) -> int:
    """Call the kernel by number. Raises OSError."""
    result = int(_libc.syscall(ctypes.c_long(_NUMBERS[name][_COLUMN]), *arguments))
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


def _kill_by_descriptor() -> object:
    """Let the kernel send SIGURG to the parent, when data arrive on a socket of ours."""
    ours, theirs = socket.socketpair()
    fcntl = _libc.fcntl
    for command, value in (
        (8, os.getppid()),  # F_SETOWN
        (_F_SETSIG, signal.SIGURG),
        (4, os.O_ASYNC if hasattr(os, "O_ASYNC") else 0o20000),  # F_SETFL
    ):
        if fcntl(ours.fileno(), command, value) < 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))
    theirs.send(b"x")
    return "a signal was sent"


def _send_to_path() -> object:
    ours, _ = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    return ours.sendto(b"x", "/dev/log")


def _sendto_with_address() -> object:
    ours, _ = socket.socketpair()
    return ours.sendto(b"x", "/dev/log")


def _forks() -> object:
    """Make a thousand processes, and end them."""
    read_end, write_end = os.pipe()
    try:
        for _ in range(_FORKS):
            if os.fork() == 0:
                os.close(write_end)
                os.read(read_end, 1)
                os._exit(0)
    finally:
        os.close(write_end)
        os.close(read_end)
    return f"{_FORKS} processes"


def _map(protection: int, flags: int, size: int = 1 << 20) -> object:
    _libc.mmap.restype = ctypes.c_void_p
    _libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
    found = _libc.mmap(None, size, protection, flags, -1, 0)
    if found in (None, ctypes.c_void_p(-1).value):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return "mapped"


def _code() -> object:
    """Turn written bytes into code."""
    page = mmap.mmap(-1, 4096, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    address = ctypes.addressof(ctypes.c_char.from_buffer(page))
    if _libc.mprotect(ctypes.c_void_p(address), ctypes.c_size_t(4096), 5):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return "executable"


def _process_memory(pid: int) -> object:
    descriptor = os.open(f"/proc/{pid}/mem", os.O_RDONLY)
    return f"descriptor {descriptor}"


def _vm_read(pid: int) -> object:
    buffer = ctypes.create_string_buffer(8)
    vector = (ctypes.c_void_p * 2)(ctypes.addressof(buffer), 8)
    return call("process_vm_readv", pid, vector, ctypes.c_ulong(1), vector, ctypes.c_ulong(1), ctypes.c_ulong(0))


def _capabilities() -> object:
    header, content = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
    _libc.syscall(ctypes.c_long((125, 90)[_COLUMN]), header, content)
    if not any(content):
        raise PermissionError(errno.EPERM, "no capability")
    return [hex(word) for word in content]


def forge_reports() -> object:
    """Report to the supervisor, on every socket, that no guest came up in the first slots."""
    num_sent = 0
    for descriptor in range(3, 64):
        for slot in range(8):
            try:
                os.write(descriptor, orjson.dumps({"failed": slot}))
                num_sent += 1
            except OSError:
                break
    return num_sent


def forge_answer() -> object:
    """Answer the stepper at once, with a result that goes on with a result of sequence 1."""
    slot = next(each for each in gc.get_objects() if isinstance(each, GuestServer)).slot
    plain = b'{"error":"","result":%b,"storage":[],"logs":"%b","micros":0}'
    forged = b'{"backtrack":0,"ff_tokens":[7]}'
    result = plain % (b"null", b"mine") + b',"1":' + plain % (forged, b"forged")
    slot.send_response(worker_replies.encode(result, 1, ()))
    select.poll().poll()
    return "answered"


def lie_about_a_fork() -> object:
    """From now on, name the parent of the spawner as the process of every fork."""
    stepper = int(os.environ["AICI_TEST_VICTIM"])
    os.fork = lambda: stepper  # type: ignore[assignment]
    return "lies"


_PRIVATE, _SHARED, _ANONYMOUS, _GROWSDOWN = 2, 1, 0x20, 0x100

ATTEMPTS: dict[str, Callable[[], object]] = {
    "read a file of the system": lambda: Path("/etc/passwd").read_text()[:20],
    "read the passwords of the system": lambda: Path("/etc/shadow").read_text()[:4],
    "list a folder": lambda: os.listdir("/")[:3],
    "look whether a file exists": lambda: os.stat("/etc/passwd").st_size,
    "write a file": lambda: Path("/dev/shm/aici-walls").write_text("x"),
    "make a file without a name": lambda: os.open("/tmp", os.O_TMPFILE | os.O_RDWR),
    "remove a file": lambda: os.unlink("/nowhere/at/all"),
    "read the memory of the spawner": lambda: _process_memory(os.getppid()),
    "read the environment of process 1": lambda: len(Path("/proc/1/environ").read_bytes()),
    "read its own mappings": lambda: len(Path("/proc/self/maps").read_bytes()),
    "read memory by process_vm_readv": lambda: _vm_read(os.getppid()),
    "trace a process": lambda: call("ptrace", 16, os.getppid(), 0, 0),
    "take a descriptor of a process": lambda: call("pidfd_getfd", os.pidfd_open(os.getppid()), 0, 0),
    "signal a process by kill": lambda: os.kill(os.getppid(), 0) or "sent",
    "signal a process by pidfd": lambda: signal.pidfd_send_signal(os.pidfd_open(os.getppid()), 0) or "sent",
    "signal a process by fcntl": _kill_by_descriptor,
    "signal a thread": lambda: call("tgkill", os.getppid(), os.getppid(), 0),
    "make a socket": lambda: socket.socket(socket.AF_INET).fileno(),
    "make a Unix socket": lambda: socket.socket(socket.AF_UNIX).fileno(),
    "send a datagram to a Unix socket": _send_to_path,
    "send to an address": _sendto_with_address,
    "start a program": lambda: os.execv("/bin/true", ["true"]),
    "map shared memory": lambda: _map(3, _SHARED | _ANONYMOUS),
    "map memory that grows as a stack": lambda: _map(3, _PRIVATE | _ANONYMOUS | _GROWSDOWN),
    "make a file in memory": lambda: os.memfd_create("x"),
    "make a secret file in memory": lambda: call("memfd_secret", 0),
    "make System V shared memory": lambda: call("shmget", 0, ctypes.c_size_t(4096), 0o1600),
    "map 2 GiB of memory": lambda: _map(3, _PRIVATE | _ANONYMOUS, 2 << 30),
    "map writable code": lambda: _map(7, _PRIVATE | _ANONYMOUS),
    "make memory executable": _code,
    "make a thousand processes": _forks,
    "raise a limit": lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (1 << 20, 1 << 20)) or "raised",
    "become root": lambda: os.setresuid(0, 0, 0) or (os.getuid() == 0 and "root"),
    "use a capability": _capabilities,
    "make namespaces": lambda: call("unshare", 0x10000000),
    "enter namespaces": lambda: call("setns", 0, 0),
    "mount": lambda: call("mount", b"none", b"/tmp", b"tmpfs", 0, None),
    "change the root folder": lambda: call("chroot", b"/"),
    "load a module of the kernel": lambda: call("init_module", None, 0, b""),
    "use io_uring": lambda: call("io_uring_setup", 1, ctypes.create_string_buffer(256)),
    "load a program of BPF": lambda: call("bpf", 0, ctypes.create_string_buffer(128), 128),
    "count events": lambda: call("perf_event_open", ctypes.create_string_buffer(128), 0, -1, -1, 0),
    "handle page faults": lambda: call("userfaultfd", 0),
    "read keys of the kernel": lambda: call("keyctl", 0, -3, 0),
    "open a message queue": lambda: call("mq_open", b"x", os.O_CREAT, 0o600, None),
    "queue a signal": lambda: call("rt_sigqueueinfo", os.getppid(), 0, ctypes.create_string_buffer(128)),
    "compare processes": lambda: call("kcmp", os.getppid(), os.getppid(), 0, 0, 0),
    "change processors": lambda: call("sched_setaffinity", 0, 8, ctypes.create_string_buffer(b"\xff" * 8)),
    "raise its priority": lambda: call("setpriority", 0, 0, 0),
    "hide the flags of a clone": lambda: call("clone3", ctypes.create_string_buffer(88), ctypes.c_size_t(88)),
    "fork a sibling": lambda: call("clone", ctypes.c_long(0x8000 | signal.SIGCHLD), 0, 0, 0, 0),
    "be dumpable": lambda: call("prctl", 4, 1, 0, 0, 0),
}


TRICKS: dict[str, Callable[[], object]] = {
    "forge reports": forge_reports,
    "forge an answer": forge_answer,
    "lie about a fork": lie_about_a_fork,
}
"""Seen from outside: these do what a worker may do."""


def outcome(name: str) -> str:
    """Return `done: ...`, or `stopped: ...` with the name of the error."""
    try:
        return f"done: {(ATTEMPTS | TRICKS)[name]()}"
    except OSError as error:
        return f"stopped: {errno.errorcode.get(error.errno or 0, str(error))}"
    except BaseException as error:  # noqa: BLE001  whatever stopped the attempt
        return f"stopped: {error}"
