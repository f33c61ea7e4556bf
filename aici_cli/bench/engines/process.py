"""An engine in a separate process, behind the protocol of `protocol.py`."""

import json
import os
import select
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from aici_base.errors import AiciError

_END_S = 10.0


class BenchEngineError(AiciError):
    """The engine is not installed, refused a request, or died."""


class Process:
    """A context manager around the engine process. At exit, the process and all children are ended.

    `limit_s`: seconds for one reply; a slower process is killed. `env`: additions to our environment.
    """

    def __init__(self, command: Sequence[str], *, limit_s: float, env: Mapping[str, str] | None = None) -> None:
        self._limit_s = limit_s
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  closed at the end of the process
        pipe, whole = subprocess.PIPE, {**os.environ, **(env or {})}
        try:
            # A separate process group: we handle Ctrl-C, and children are ended together with the process.
            self._process = subprocess.Popen(
                command, stdin=pipe, stdout=pipe, stderr=self._errors, env=whole, process_group=0
            )
        except OSError as error:
            self._errors.close()
            raise BenchEngineError(f"cannot run {command[0]}: {error.strerror}") from error
        # A pidfd, because a child can keep stdout open after the process died.
        self._death = os.pidfd_open(self._process.pid)

    def ask(self, op: str, job: dict[str, Any]) -> dict[str, Any]:
        """Send a request and return the reply.

        Raises BenchEngineError with the error of the reply, or with the last line of stderr if the process died.
        """
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps({"op": op, "job": job}).encode() + b"\n")
            self._process.stdin.flush()
        if line := self._line(op):
            answer: dict[str, Any] = json.loads(line)
            if error := answer.get("error"):
                raise BenchEngineError(error.splitlines()[0])
            return answer
        self._errors.seek(0)
        said = [line.strip() for line in self._errors.read().decode(errors="replace").splitlines() if line.strip()]
        raise BenchEngineError(said[-1] if said else f"the process ended during {op} without a message")

    def memory(self) -> tuple[int, int]:
        """Return memory now (proportional set size) and peak memory, in bytes, summed over the process and its
        children.
        """
        now = peak = 0
        for pid in _group(self._process.pid):
            with suppress(OSError):
                now += _field(Path(f"/proc/{pid}/smaps_rollup"), "Pss:")
                peak += _field(Path(f"/proc/{pid}/status"), "VmHWM:")
        return now, peak

    def _line(self, op: str) -> bytes:
        """Return a line of stdout; empty if the process dies first."""
        assert self._process.stdout is not None
        out = self._process.stdout.fileno()
        poll = select.poll()
        poll.register(out, select.POLLIN)
        poll.register(self._death, select.POLLIN)
        line, deadline = b"", time.monotonic() + self._limit_s
        while not line.endswith(b"\n"):
            ready = [fd for fd, _ in poll.poll(max(0.0, 1000 * (deadline - time.monotonic())))]
            if not ready:
                self._kill()  # a busy process would slow down the other engines
                raise BenchEngineError(f"no reply to {op} within {self._limit_s:g} s")
            more = os.read(out, 1 << 16) if out in ready else b""
            if not more:
                return b""
            line += more
        return line

    def _kill(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def __enter__(self) -> "Process":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        # The process ends at the end of its input. After an error, do not wait.
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        if kind is None:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_END_S)
        self._kill()
        self._process.wait()
        self._process.stdout.close()
        self._errors.close()
        os.close(self._death)


def _group(leader: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(ProcessLookupError, PermissionError):
                if os.getpgid(int(entry.name)) == leader:
                    found.append(int(entry.name))
    return found


def _field(path: Path, name: str) -> int:
    """Return a field of a /proc file in bytes; /proc counts in KiB."""
    return next(int(line.split()[1]) * 1024 for line in path.read_text().splitlines() if line.startswith(name))
