"""One contestant in a process of its own: asked, waited for, measured and ended."""

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


class ContestantError(AiciError):
    """It is not installed, cannot do what it was asked for, or has died."""


class Process:
    """Speaks the conversation of `peers.py`. A context manager: whatever it started is ended when it is left.

    `limit_s`: for one answer; it does not live longer. `env`: beside what this process has.
    """

    def __init__(self, command: Sequence[str], *, limit_s: float, env: Mapping[str, str] | None = None) -> None:
        self._limit_s = limit_s
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  closed where the process ends
        pipe, whole = subprocess.PIPE, {**os.environ, **(env or {})}
        try:
            # A group of its own: Ctrl-C is ours to handle, and its children are ended with it.
            self._process = subprocess.Popen(
                command, stdin=pipe, stdout=pipe, stderr=self._errors, env=whole, process_group=0
            )
        except OSError as error:
            self._errors.close()
            raise ContestantError(f"cannot run {command[0]}: {error.strerror}") from error
        # A child of it may hold its stdout open when it has died.
        self._death = os.pidfd_open(self._process.pid)

    def ask(self, op: str, job: dict[str, Any]) -> dict[str, Any]:
        """Raises ContestantError with what it says, or, if it has died, with the last line that it wrote to stderr."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps({"op": op, "job": job}).encode() + b"\n")
            self._process.stdin.flush()
        if line := self._line(op):
            answer: dict[str, Any] = json.loads(line)
            if error := answer.get("error"):
                raise ContestantError(error.splitlines()[0])
            return answer
        self._errors.seek(0)
        said = [line.strip() for line in self._errors.read().decode(errors="replace").splitlines() if line.strip()]
        raise ContestantError(said[-1] if said else f"it ended without a word during {op}")

    def memory(self) -> tuple[int, int]:
        """Bytes that it and its children hold now, shared ones in parts, and the most that each has held, summed."""
        now = peak = 0
        for pid in _group(self._process.pid):
            with suppress(OSError):
                now += _field(Path(f"/proc/{pid}/smaps_rollup"), "Pss:")
                peak += _field(Path(f"/proc/{pid}/status"), "VmHWM:")
        return now, peak

    def _line(self, op: str) -> bytes:
        """Empty if it dies first."""
        assert self._process.stdout is not None
        out = self._process.stdout.fileno()
        poll = select.poll()
        poll.register(out, select.POLLIN)
        poll.register(self._death, select.POLLIN)
        line, deadline = b"", time.monotonic() + self._limit_s
        while not line.endswith(b"\n"):
            ready = [fd for fd, _ in poll.poll(max(0.0, 1000 * (deadline - time.monotonic())))]
            if not ready:
                self._kill()  # who is busy with nothing would slow the others down
                raise ContestantError(f"no answer to {op} for {self._limit_s:g} s")
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
        # The end of its input is its end. An error waits for nothing.
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
    """In bytes; /proc counts in KiB."""
    return next(int(line.split()[1]) * 1024 for line in path.read_text().splitlines() if line.startswith(name))
