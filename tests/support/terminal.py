"""A program at a terminal, as a user sees the program."""

import contextlib
import os
import pty
import time
from collections.abc import Iterator, Mapping, Sequence
from multiprocessing.connection import wait
from pathlib import Path

CTRL_C, CTRL_D = b"\x03", b"\x04"
_PATIENCE_S = 100


class Terminal:
    def __init__(self, pid: int, descriptor: int) -> None:
        self._pid = pid
        self._descriptor = descriptor
        self._unread = b""

    def type(self, keys: str | bytes) -> None:
        os.write(self._descriptor, keys.encode() if isinstance(keys, str) else keys)

    def until(self, wanted: str) -> str:
        """Return the output since the last call, up to and with `wanted`."""
        deadline = time.monotonic() + _PATIENCE_S
        while wanted.encode() not in self._unread:
            left_s = max(0.0, deadline - time.monotonic())
            assert wait([self._descriptor], left_s), f"no {wanted!r} in {self._unread!r}"
            try:
                self._unread += os.read(self._descriptor, 1 << 16)
            except OSError as error:  # the program has ended
                raise AssertionError(f"no {wanted!r} in {self._unread!r}") from error
        shown, _, self._unread = self._unread.partition(wanted.encode())
        return (shown + wanted.encode()).decode()

    def wait(self) -> int:
        """Read the output to the end, and return the exit code: negative after a signal."""
        with contextlib.suppress(OSError):  # how a terminal ends on Linux
            while True:
                assert wait([self._descriptor], _PATIENCE_S), f"no end after {self._unread!r}"
                self._unread += os.read(self._descriptor, 1 << 16)
        return os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])


@contextlib.contextmanager
def at_terminal(
    command: Sequence[str], env: Mapping[str, str] | None = None, cwd: Path | None = None
) -> Iterator[Terminal]:
    """Run a command at a terminal. A failed test ends the command; otherwise `Terminal.wait` does."""
    pid, descriptor = pty.fork()
    if pid == 0:
        os.chdir(cwd or ".")
        os.execve(command[0], list(command), os.environ | {"TERM": "xterm"} | (env or {}))
    try:
        yield Terminal(pid, descriptor)
    except BaseException:
        os.kill(pid, 9)
        os.waitpid(pid, 0)
        raise
    finally:
        os.close(descriptor)
