"""A child process, restarted whenever it ends."""

import contextlib
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence

from aici_runtime import process

_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 10.0
_CALM_S = 30.0
"""After a life of this length, the next start does not wait."""
_LAST_LINES = 20
_READ_BYTES = 1 << 16
_LAUNCHER = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)  # PR_SET_PDEATHSIG
if os.getppid() != int(sys.argv[1]):
    os._exit(1)
os.execvp(sys.argv[2], sys.argv[2:])
"""
"""Lets the kernel kill the process with its parent, then becomes the command. Code between fork and exec (`preexec_fn`)
could wait for ever for a lock that another thread of the parent held during the fork."""


class KeptProcess:
    """Starts a command, reads its standard output until a line says that the process is ready, and starts it again when
    it ends.

    The owner has a loop: wait until a descriptor of `fds` is readable or `deadline` is over, then call `advance`.
    Nothing else blocks or takes time. `listen` gets each line of standard output. If `listen` returns a text, the
    process is ready, and `answer` holds the latest text; other lines go to standard error unless `quiet` is set. A
    process that is not ready after `ready_timeout_s` seconds is killed. `may_start`: return False to put a start off
    for a moment, for example because a server cannot be reached.

    The child is the leader of a process group, and the kernel kills the child when the owner's thread ends.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        listen: Callable[[str], str | None],
        ready_timeout_s: float,
        environment: Mapping[str, str] | None = None,
        may_start: Callable[[], bool] = lambda: True,
        quiet: bool = False,
    ) -> None:
        self.command = list(command)
        self.answer: str | None = None
        self.num_starts = 0
        self.is_put_off = False
        """Whether `may_start` has put the next start off."""
        self._listen = listen
        self._ready_timeout_s = ready_timeout_s
        self._environment = None if environment is None else {**os.environ, **environment}
        self._may_start = may_start
        self._quiet = quiet
        self._told: str | None = None
        self._pause_s = 0.0
        self._start_at: float | None = time.monotonic()
        self._started_at = 0.0
        self._popen: subprocess.Popen[bytes] | None = None
        self._pidfd = self._output = -1
        self._unread = b""
        self._lines: deque[str] = deque(maxlen=_LAST_LINES)

    @property
    def pid(self) -> int | None:
        """The process id, or None between two lives."""
        return None if self._popen is None else self._popen.pid

    @property
    def age_s(self) -> float:
        """Seconds since the last start."""
        return time.monotonic() - self._started_at if self.num_starts else 0.0

    @property
    def fds(self) -> list[int]:
        return [fd for fd in (self._pidfd, self._output) if fd >= 0]

    @property
    def deadline(self) -> float | None:
        """The time (`time.monotonic`) at which `advance` has something to do, or None."""
        if self._popen is None:
            return self._start_at
        return None if self.answer is not None else self._started_at + self._ready_timeout_s

    def last_words(self) -> str:
        """Return the last lines of the output."""
        return "\n".join(self._lines)

    def advance(self) -> None:
        """Read output, notice an end or a deadline, and start the process if it is time."""
        self._read()
        if self._popen is not None and process.has_ended(self._pidfd):
            self._forget()
        now = time.monotonic()
        if self._popen is None:
            if self._start_at is not None and now >= self._start_at:
                self.is_put_off = not self._may_start()
                if self.is_put_off or not self._start():
                    self._put_off(now)
        elif self.answer is None and now >= self._started_at + self._ready_timeout_s:
            self._lines.append(f"not ready after {self._ready_timeout_s:g} s")
            self.kill()

    def tell(self, line: str) -> None:
        """Write a line to standard input of this life and, as the first line, of each later life."""
        self._told = line
        self._write()

    def kill(self) -> None:
        """Kill the process and its group. The process is started again."""
        if self._popen is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._popen.pid, signal.SIGKILL)  # not reaped yet: the number cannot belong to a stranger

    def end(self, grace_s: float = 0.0) -> None:
        """End the process for good: SIGTERM and `grace_s` seconds, then SIGKILL for the whole group."""
        self._start_at = None
        if self._popen is None:
            return
        if grace_s:
            process.kill(self._pidfd, signal.SIGTERM)
            deadline = time.monotonic() + grace_s
            while not process.has_ended(self._pidfd, 0.05) and time.monotonic() < deadline:
                self._read()  # a full pipe would hold the process up
        self.kill()
        self._popen.wait()
        self._forget()
        self._start_at = None

    def _start(self) -> bool:
        """Return whether there is a process: the kernel may lack descriptors, processes or memory for now."""
        popen: subprocess.Popen[bytes] | None = None
        try:
            popen = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _LAUNCHER, str(os.getpid()), *self.command],
                env=self._environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT if self._quiet else None,
                process_group=0,
            )
            self._pidfd = os.pidfd_open(popen.pid)
        except OSError as error:
            self._lines.append(f"the process cannot be started: {error}")
            if not self._quiet:
                print(self._lines[-1], file=sys.stderr)  # noqa: T201
            if popen is not None:
                popen.kill()
                popen.communicate()
            return False
        self._popen = popen
        assert self._popen.stdout is not None
        self._output = self._popen.stdout.fileno()
        os.set_blocking(self._output, False)
        self._started_at = time.monotonic()
        self._unread = b""
        self._lines.clear()
        self.num_starts += 1
        self._write()
        return True

    def _write(self) -> None:
        """Write the line of `tell`. A pipe holds 64 KiB, so that a short line never waits for the reader."""
        if self._popen is not None and self._told is not None:
            assert self._popen.stdin is not None
            with contextlib.suppress(BrokenPipeError):
                os.write(self._popen.stdin.fileno(), self._told.encode() + b"\n")

    def _read(self) -> None:
        while self._output >= 0:
            try:
                data = os.read(self._output, _READ_BYTES)
            except BlockingIOError:
                return
            if not data:
                self._close_output()
                return
            *lines, self._unread = (self._unread + data).split(b"\n")
            for line in lines:
                self._take(line.decode(errors="replace"))

    def _take(self, line: str) -> None:
        self._lines.append(line)
        answer = self._listen(line)
        if answer is not None:
            self.answer = answer
        elif not self._quiet:
            print(line, file=sys.stderr)  # noqa: T201  a child's output is not this process's result

    def _forget(self) -> None:
        """Reap the process and plan the next start."""
        assert self._popen is not None
        self._read()
        self.kill()  # the rest of the group
        self._popen.wait()
        self._close_output()
        assert self._popen.stdin is not None
        self._popen.stdin.close()
        os.close(self._pidfd)
        self._popen, self._pidfd, self.answer = None, -1, None
        now = time.monotonic()
        if now - self._started_at >= _CALM_S:
            self._pause_s = 0.0
            self._start_at = now
        else:
            self._put_off(now)

    def _put_off(self, now: float) -> None:
        self._start_at = now + self._pause_s
        self._pause_s = min(max(2 * self._pause_s, _FIRST_PAUSE_S), _LONGEST_PAUSE_S)

    def _close_output(self) -> None:
        if self._output >= 0:
            assert self._popen is not None
            assert self._popen.stdout is not None
            self._popen.stdout.close()
            self._output = -1


class KeptProcessThread:
    """Keeps a process, in a thread of its own, for an owner without a loop.

    `advanced` is called in that thread whenever the process may have another answer. The process ends at `close`, by
    SIGTERM first if `grace_s` is not 0.
    """

    def __init__(
        self, process: KeptProcess, *, name: str, advanced: Callable[[str | None], None], grace_s: float = 0.0
    ) -> None:
        self.process = process
        self._advanced = advanced
        self._grace_s = grace_s
        self._to_tell: str | None = None
        self._is_closing = False
        self._wake_reader, self._wake_writer = os.pipe()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def tell(self, line: str) -> None:
        """As `KeptProcess.tell`."""
        self._to_tell = line
        os.write(self._wake_writer, b"x")

    def close(self) -> None:
        """End the process and the thread. Idempotent."""
        if not self._is_closing:
            self._is_closing = True
            os.write(self._wake_writer, b"x")
            self._thread.join()
            os.close(self._wake_reader)
            os.close(self._wake_writer)

    def _run(self) -> None:
        """The kernel kills the process with the thread that started it: this one, which lives until `close`."""
        process = self.process
        try:
            while not self._is_closing:
                process.advance()
                self._advanced(process.answer)
                deadline = process.deadline
                wait_s = None if deadline is None else max(0.0, deadline - time.monotonic())
                poller = select.poll()  # select() takes no descriptors above 1,023, and a server has many
                for fd in (self._wake_reader, *process.fds):
                    poller.register(fd, select.POLLIN)
                ready = poller.poll(None if wait_s is None else 1000 * wait_s)
                if self._wake_reader in dict(ready):
                    os.read(self._wake_reader, 64)
                    if self._to_tell is not None:
                        process.tell(self._to_tell)
        finally:
            process.end(self._grace_s)
