"""The `aicirt` process as its parent sees it."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from aici_runtime import process

_LAST_LINES = 30
_END_GRACE_S = 2.0


class RuntimeProcess:
    """Owns the process and its group. Its standard error is passed on to ours, or to `say`; the last lines are kept.

    `folder` and `environment`: in which it runs (None: in ours)."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        say: Callable[[str], object] | None = None,
        folder: Path | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._say = say
        # A group of its own: Ctrl-C in a terminal is for the engine, which then ends us in order.
        self._popen = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            process_group=0,
        )
        self.pid = self._popen.pid
        self._pidfd = os.pidfd_open(self.pid)
        self._lines: deque[str] = deque(maxlen=_LAST_LINES)
        self._pump = threading.Thread(target=self._pass_on, name="aicirt-stderr", daemon=True)
        self._pump.start()

    def _pass_on(self) -> None:
        if self._popen.stderr is None:
            return
        for raw in self._popen.stderr:
            line = raw.decode(errors="replace")
            self._lines.append(line)
            # Whatever becomes of ours: a pipe that is not emptied would stop the runtime in the middle of a line.
            with contextlib.suppress(OSError, ValueError, AttributeError):
                (self._say or sys.stderr.write)(line)

    def wait_ended(self) -> None:
        """Until the process has ended; does not reap it."""
        process.has_ended(self._pidfd, timeout_s=-0.001)

    def last_words(self) -> str:
        """The end of its standard error. After a death, waits a moment for what is still in the pipe."""
        if process.has_ended(self._pidfd):
            self._pump.join(timeout=0.5)
        return "".join(self._lines)

    def end(self) -> None:
        """End every process of the group and wait until they are gone."""
        process.kill(self._pidfd, signal.SIGTERM)
        process.has_ended(self._pidfd, timeout_s=_END_GRACE_S)
        # Not reaped yet, so the number of the group is still ours.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._popen.wait()
        # Every process of the runtime holds the other end of this pipe: its end is the end of the last of them.
        self._pump.join(timeout=_END_GRACE_S)
        if self._popen.stderr is not None:
            self._popen.stderr.close()
        os.close(self._pidfd)
