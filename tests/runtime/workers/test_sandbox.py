"""Limits of a guest's process, even with native code: tried from inside."""

import ctypes
import os
import platform
import resource
import signal
import socket
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from aici_base.errors import RuntimeDiedError, UsageError
from aici_runtime.client import Runtime
from aici_runtime.wire import MidOp
from aici_runtime.workers import sandbox, syscall_filter
from tests.runtime.support import wat
from tests.runtime.support.processes import bind, members, replaced

needs_filter = pytest.mark.skipif(bool(syscall_filter.missing()), reason="no seccomp for this kernel or processor")
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes somebody else")


def inside(body: Callable[[], object], *, modules: Path | None = None) -> str:
    """Return the outcome of `body` in a child inside the sandbox, which may read the files of `modules`."""
    with tempfile.TemporaryFile() as said:
        child = os.fork()
        if child == 0:
            try:
                sandbox.enter(memory_bytes=1 << 20, modules=modules)
                os.write(said.fileno(), repr(body()).encode())
            except BaseException as error:  # noqa: BLE001  to be told
                os.write(said.fileno(), type(error).__name__.encode())
            finally:
                os._exit(0)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        said.seek(0)
        return said.read().decode() if code == 0 else f"ended by {code}"


def forked() -> str:
    child = os.fork()
    if child == 0:
        os._exit(7)
    return f"code {os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}"


@needs_filter
@pytest.mark.parametrize(
    ("attempt", "outcome"),
    [
        (lambda: Path("/dev/null").write_text("x"), "PermissionError"),
        (lambda: os.open("/tmp", os.O_TMPFILE | os.O_RDWR), "PermissionError"),
        (lambda: os.open("/tmp/x", os.O_CREAT), "PermissionError"),
        (lambda: os.unlink("/nowhere/at/all"), "PermissionError"),
        (lambda: os.mkdir("/nowhere/at/all"), "PermissionError"),
        (lambda: os.execv(sys.executable, ["python"]), "PermissionError"),
        (lambda: socket.socket(socket.AF_UNIX), "PermissionError"),
        (lambda: socket.socket(socket.AF_INET), "PermissionError"),
        (lambda: socket.socketpair(socket.AF_INET), "PermissionError"),
        (lambda: os.kill(os.getppid(), 0), "PermissionError"),
        (lambda: signal.pidfd_send_signal(os.pidfd_open(os.getppid()), 0), "PermissionError"),
        (lambda: os.setuid(1), "PermissionError"),
        (lambda: ctypes.CDLL(None, use_errno=True).ptrace(0, 0, 0, 0) or ctypes.get_errno(), "-1"),
        (lambda: ctypes.CDLL(None).unshare(0x10000000), "-1"),
        (lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (1 << 20, 1 << 20)), "ValueError"),
        (forked, "'code 7'"),
        (lambda: len(socket.socketpair()), "2"),
        (lambda: os.memfd_create("x") > 0, "True"),
    ],
)
def test_what_is_refused_and_what_is_not(attempt: Callable[[], object], outcome: str) -> None:
    assert inside(attempt) == outcome


@needs_filter
def test_nobody_gets_out_again() -> None:
    """Neither by a set-user-id program, nor by the other system calls of the processor (x32)."""
    status = inside(lambda: Path("/proc/self/status").read_text(), modules=Path("/proc"))
    assert "NoNewPrivs:\\t1" in status
    assert "Seccomp:\\t2" in status
    if platform.machine() == "x86_64":
        x32_getpid = 0x40000000 + 39
        assert inside(lambda: ctypes.CDLL(None).syscall(x32_getpid)) == "-1"


def test_memory_ends() -> None:
    assert inside(lambda: len(bytearray(2 << 30))) == "MemoryError"
    assert inside(lambda: len(bytearray(64 << 20))) == str(64 << 20)


def test_every_process_of_guests_is_inside(start_runtime: Callable[..., Runtime]) -> None:
    """Also workers of a replaced spawner are in the sandbox, and have their full stack."""
    runtime = start_runtime()
    wasm = wat.Module().build(mid="(call $deep)", extra="(func $deep (call $deep))")
    for number in (1, 2):
        seq_id = bind(runtime, number, wasm)
        for pid, name in members(runtime.pid).items():
            status = Path(f"/proc/{pid}/status").read_text()
            assert ("NoNewPrivs:\t1" in status) == (name not in ("aicirt", "aicirt-side"))
        runtime.send_mid([MidOp(seq_id)])
        assert "call stack exhausted" in runtime.recv_mid().seqs[seq_id].error
        replaced(runtime, "aicirt-spawner")


@needs_root
def test_guests_as_somebody_else(start_runtime: Callable[..., Runtime]) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:  # pytest's own descriptors are close-on-exec
        Path(folder).chmod(0o755)
        runtime = start_runtime(cache_dir=Path(folder), extra_args=("--worker-user=65534",))
        bind(runtime, 1, wat.plain())
    worker = next(pid for pid, name in members(runtime.pid).items() if name == "aicirt-seq")
    ids = next(line for line in Path(f"/proc/{worker}/status").read_text().splitlines() if line.startswith("Uid"))
    assert ids.split()[1:] == ["65534"] * 4


@needs_root
@pytest.mark.parametrize(
    ("user", "message"), [("no-such-user", "there is no user no-such-user"), ("65534", "65534 cannot read")]
)
def test_users_that_cannot_be(start_runtime: Callable[..., Runtime], tmp_path: Path, user: str, message: str) -> None:
    (tmp_path / "modules").mkdir()
    tmp_path.chmod(0o700)
    with pytest.raises(RuntimeDiedError, match=message):
        start_runtime(cache_dir=tmp_path, extra_args=(f"--worker-user={user}",))


def test_only_root_may_ask_for_another_user() -> None:
    if os.geteuid() == 0:
        assert inside(lambda: os.setuid(65534)) == "PermissionError"
    else:
        with pytest.raises(UsageError, match="needs to be started by root"):
            sandbox.enter(memory_bytes=1 << 20, user=str(os.getuid() + 1))
