"""Render chat templates in a separate process with limits of time and memory.

A message, in either direction, is JSON behind the length in four bytes. The process has no environment variables, opens
no file for writing, and ends when standard input ends.
"""

import contextlib
import json
import os
import resource
import signal
import struct
import subprocess
import sys
import threading
from collections.abc import Mapping
from multiprocessing.connection import wait
from typing import IO, Any, Final

from aici_base.errors import UnavailableError
from aici_engine.chat.rendering import Rendered

CPU_LIMIT_S: Final = 1.0
MEMORY_MAX_BYTES: Final = 256 << 20
_WAIT_S: Final = 60.0
"""A process that gets no processor time is killed, too."""

_LENGTH: Final = struct.Struct("<I")


class RenderingProcess:
    """Renders templates one at a time, from any thread. The process starts with the first template, and anew after a
    template has exceeded a limit."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """The rendering process, if started."""
        return None if self._process is None else self._process.pid

    def __call__(self, source: str, variables: Mapping[str, Any] | None) -> Rendered:
        """Render as `rendering.Render`. Raises UnavailableError if the process ended twice for no reason of its
        own."""
        request = json.dumps([source, variables]).encode()
        with self._lock:
            for _ in range(2):
                answer = self._ask(request)
                if answer is not None:
                    return answer
        raise UnavailableError("the process that renders chat templates ended unexpectedly", hint="try again")

    def close(self) -> None:
        with self._lock:
            self._end()

    def _ask(self, request: bytes) -> Rendered | None:
        """Return None if the process was killed by somebody else."""
        process = self._process or self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(_LENGTH.pack(len(request)) + request)
            process.stdin.flush()
            ready = wait([process.stdout.fileno()], _WAIT_S)
            if not ready:
                self._end()
                return Rendered("costly", f"the template gave no text within {_WAIT_S:.0f} s")
            answer = _read(process.stdout)
        except BrokenPipeError:
            answer = None
        if answer is not None:
            return Rendered(*json.loads(answer))
        self._end()
        if process.returncode == -signal.SIGPROF:
            return Rendered("costly", f"the template computes for more than {CPU_LIMIT_S:.0f} s")
        return None

    def _start(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-P", "-m", "aici_engine.chat.rendering_process"]
        path = {name: value for name, value in os.environ.items() if name in ("PYTHONPATH", "PYTHONHOME", "TZ")}
        self._process = subprocess.Popen(
            command, env=path, cwd="/", stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        return self._process

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            assert pipe is not None
            with contextlib.suppress(BrokenPipeError):  # what is left of a request
                pipe.close()


def _read(pipe: IO[bytes]) -> bytes | None:
    """Return the next message, or None at the end."""
    head = pipe.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        return None
    [length] = _LENGTH.unpack(head)
    body = pipe.read(length)
    return body if len(body) == length else None


def _limit() -> None:
    signal.signal(signal.SIGPROF, signal.SIG_DFL)  # ends the process
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the server, which ends this process
    with open("/proc/self/statm") as statm:
        now = int(statm.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + MEMORY_MAX_BYTES, now + MEMORY_MAX_BYTES))
    for unwanted in (resource.RLIMIT_CORE, resource.RLIMIT_FSIZE):
        resource.setrlimit(unwanted, (0, 0))


def main() -> None:
    from aici_engine.chat.jinja_rendering import render

    _limit()
    requests, answers = sys.stdin.buffer, sys.stdout.buffer
    while (request := _read(requests)) is not None:
        signal.setitimer(signal.ITIMER_PROF, CPU_LIMIT_S)
        is_full = False
        try:
            answer = json.dumps(render(*json.loads(request))).encode()
        except MemoryError:
            is_full = True
            full = Rendered("costly", f"the template needs more than {MEMORY_MAX_BYTES >> 20} MiB")
            answer = json.dumps(full).encode()
        signal.setitimer(signal.ITIMER_PROF, 0)
        answers.write(_LENGTH.pack(len(answer)) + answer)
        answers.flush()
        if is_full:
            return  # the next process has its memory in order


if __name__ == "__main__":
    main()
