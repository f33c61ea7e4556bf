"""An engine in a process of its own, which may crash or be stopped at a time limit without ending the run.

The limit is CPU time of the process, so that the load of the machine decides nothing.
"""

import json
import signal
import subprocess
import sys
from multiprocessing.connection import wait
from typing import Any

_MODULE = "tests.real_schemas.worker"
_WALL_TIMES = 20  # an engine that waits for something, or a machine under much load


class Isolated:
    """Asks an engine of `engines.py`. The process is started at the first question and again after its end."""

    def __init__(self, name: str, *, limit_s: float, program: str | None = None) -> None:
        self.name = name
        self._program = [program] if program else []
        self._limit_s = limit_s
        self._process: subprocess.Popen[str] | None = None

    def ask(self, schema: Any, texts: list[str]) -> dict[str, Any]:
        """Return `accepted`, one boolean for each text; or `declined`, the cause."""
        if self._process is None:
            command = [sys.executable, "-m", _MODULE, self.name, str(self._limit_s), *self._program]
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
            )
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps({"schema": schema, "texts": texts}) + "\n")
            process.stdin.flush()
            ready = wait([process.stdout], self._limit_s * _WALL_TIMES)
            line = process.stdout.readline() if ready else ""
        except BrokenPipeError:
            ready, line = [process.stdout], ""
        if line:
            answer: dict[str, Any] = json.loads(line)
            return answer
        timed_out = not ready or process.wait() == -signal.SIGPROF
        self.close()
        return {"declined": f"no answer within {self._limit_s:.0f} s" if timed_out else "the process ended"}

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None
