"""The `aicirt` process from the point of view of the parent."""

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
    """Owns the process and the process group. Standard error goes to `say`, or to this process's; the last lines are
    kept.

    `folder` and `environment`: of the process; None means inherited. `pass_fds`: descriptors for the process.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        say: Callable[[str], object] | None = None,
        folder: Path | None = None,
        environment: Mapping[str, str] | None = None,
        pass_fds: Sequence[int] = (),
    ) -> None:
        self._say = say
        # A process group of its own: Ctrl-C in a terminal goes to the engine, which then ends the runtime in order.
        self._popen = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            process_group=0,
            pass_fds=pass_fds,
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
            # Keep reading even if the output fails: a full pipe would block the runtime in the middle of a line.
            with contextlib.suppress(OSError, ValueError, AttributeError):
                (self._say or sys.stderr.write)(line)

    def wait_ended(self) -> None:
        """Wait until the process has ended, without reaping it."""
        process.has_ended(self._pidfd, timeout_s=-0.001)

    def last_words(self) -> str:
        """Return the end of standard error. After a death, wait a moment for the rest of the pipe."""
        if process.has_ended(self._pidfd):
            self._pump.join(timeout=0.5)
        return "".join(self._lines)

    def end(self) -> None:
        """End every process of the group and wait until they are gone."""
        process.kill(self._pidfd, signal.SIGTERM)
        process.has_ended(self._pidfd, timeout_s=_END_GRACE_S)
        # The process is not reaped yet, so the group number cannot belong to a stranger.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._popen.wait()
        # Every process of the runtime holds the other end of the pipe, so EOF means that all have ended.
        self._pump.join(timeout=_END_GRACE_S)
        if self._popen.stderr is not None:
            self._popen.stderr.close()
        os.close(self._pidfd)
