"""The parts of the runtime without which nothing new starts: forked from the stepper's process, and again when killed.

The replacement is forked by the roster's thread, beside which another one runs. That is safe here: the child runs only
what it is given, touches no lock of ours (Python makes its own anew), and leaves by `os._exit`.
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
    """`leave` ends the runtime with an exit code. Used by one thread once the first parts have been started."""

    def __init__(self, leave: Callable[[int], NoReturn]) -> None:
        self._leave = leave
        self._replace: dict[int, tuple[str, Callable[[], None]]] = {}
        self._deaths: deque[float] = deque(maxlen=_MAX_DEATHS)

    def start(self, name: str, body: Callable[[], None], replace: Callable[[], None]) -> None:
        """`replace` is called when the process is killed; one that ends by itself has said why, and would again."""
        self._replace[fork_child(body)] = name, replace

    def reap(self) -> None:
        """To be called after SIGCHLD. Workers are children of ours too, when the spawner that forked them has died."""
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
            sys.stderr.write(f"error: {name} has ended; without it nothing can go on\n")
            self._leave(AiciError.exit_code)
        now = time.monotonic()
        self._deaths.append(now)
        if len(self._deaths) == _MAX_DEATHS and now - self._deaths[0] < _WITHIN_S:
            why = f"the {_MAX_DEATHS}th of such deaths within {_WITHIN_S:.0f} s"
            sys.stderr.write(f"error: {name} was killed (signal {-code}), {why}; the runtime gives up\n")
            self._leave(AiciError.exit_code)
        sys.stderr.write(f"WARNING: {name} was killed (signal {-code}); another one takes its place\n")
        replace()
