"""Run compilers as processes that never outlive the build."""

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from aici_base.errors import ControllerError


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A compiler to run. `wrong`: the error message if the compiler fails."""

    argv: Sequence[str]
    wrong: str
    cwd: Path | None = None
    env: Mapping[str, str] | None = None


def run(command: Command) -> str:
    return run_all([command])[0]


def run_all(commands: Sequence[Command]) -> list[str]:
    """Run commands in parallel and return their stderr, in order. Raise ControllerError with the stderr of the first
    failure.

    On any exit (Ctrl-C, a signal raised as an exception) the remaining processes are killed. Every command has a
    process group of its own, since drivers such as zig and npx start the compiler as a child process.
    """
    started: list[subprocess.Popen[str]] = []
    is_over = threading.Event()

    def run_one(command: Command) -> str:
        process = subprocess.Popen(
            command.argv,
            cwd=command.cwd,
            env=command.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            process_group=0,
        )
        started.append(process)
        if is_over.is_set():  # while this process was being started
            _kill(process)
        _, said = process.communicate()
        if process.returncode:
            raise ControllerError(f"{command.wrong}\n{said.strip()}")
        return said

    with ThreadPoolExecutor(min(4, os.cpu_count() or 1)) as pool:
        try:
            running = [pool.submit(run_one, command) for command in commands]
            return [each.result() for each in running]
        finally:
            is_over.set()
            pool.shutdown(wait=False, cancel_futures=True)
            for process in started:
                _kill(process)


def _kill(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
