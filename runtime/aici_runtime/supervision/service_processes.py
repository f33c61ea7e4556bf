"""The service processes of the runtime: the spawner and the side process. Forked from the stepper's process, and forked
again when killed.

The supervisor's thread forks the replacement while the stepper's thread runs. The fork is safe: the child runs only the
given function, touches no lock of the runtime (Python renews the interpreter's locks) and leaves by `os._exit`.
"""

import os
import sys
import time
from collections import deque
from collections.abc import Callable
from typing import NoReturn

from aici_base.errors import AiciError
from aici_runtime.process import fork_child

_MAX_DEATHS = 5
_WITHIN_S = 10.0


class ServiceProcesses:
    """Starts and replaces the service processes. Used by a single thread after the first start.

    `leave` ends the runtime with an exit code.
    """

    def __init__(self, leave: Callable[[int], NoReturn]) -> None:
        self._leave = leave
        self._replace: dict[int, tuple[str, Callable[[], None]]] = {}
        self._deaths: deque[float] = deque(maxlen=_MAX_DEATHS)

    def start(self, name: str, body: Callable[[], None], replace: Callable[[], None]) -> int:
        """Fork a service process and return its pid. `replace` is called when the process is killed.

        A process that ends by itself has reported the reason and would end again, so the runtime ends too.
        """
        pid = fork_child(body)
        self._replace[pid] = name, replace
        return pid

    def reap(self) -> None:
        """Reap dead children, after SIGCHLD. Workers are among the children once the spawner that forked them
        has died."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid in self._replace:
                self._died(*self._replace.pop(pid), os.waitstatus_to_exitcode(status))

    def _died(self, name: str, replace: Callable[[], None], code: int) -> None:
        if code >= 0:
            sys.stderr.write(f"error: {name} has ended; the runtime cannot go on without it\n")
            self._leave(AiciError.exit_code)
        now = time.monotonic()
        self._deaths.append(now)
        if len(self._deaths) == _MAX_DEATHS and now - self._deaths[0] < _WITHIN_S:
            why = f"the {_MAX_DEATHS}th of such deaths within {_WITHIN_S:.0f} s"
            sys.stderr.write(f"error: {name} was killed (signal {-code}), {why}; the runtime gives up\n")
            self._leave(AiciError.exit_code)
        sys.stderr.write(f"WARNING: {name} was killed (signal {-code}); a replacement starts\n")
        replace()
