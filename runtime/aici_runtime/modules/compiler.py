"""Start the compiler process (`compiler_process.py`) and interpret how the process ends."""

import math
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

from aici_base.errors import UnavailableError, UsageError

NO_CONTROLLER = os.EX_DATAERR
"""Exit status of the compiler process: the module is at fault."""

TIMEOUT_S = 60.0
"""Time limit without a flag: six times the limit of upstream AICI, whose machines had more cores."""

MEMORY_BYTES: Final = 2 << 30
"""Address space of the compiler process. A guest of 10 MB needs a quarter of it."""

_SMALLER: Final = "make the module smaller, or split large functions"


def compile_module(
    source: Path, target: Path, timeout_s: float = TIMEOUT_S, *, memory_bytes: int = MEMORY_BYTES
) -> None:
    """Compile in a child process, which ends when this process ends. `target` appears whole or not at all.

    The child has one thread, `timeout_s` of time and of processor time, and `memory_bytes`. Raise UsageError if the
    module is not a controller or needs more than that, UnavailableError if compiling fails for another reason.
    """
    limits = [str(math.ceil(timeout_s)), str(memory_bytes)]
    command = [sys.executable, "-P", "-m", "aici_runtime.modules.compiler_process", str(source), str(target), *limits]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as child:
        try:
            # Standard input stays open. The child ends when its standard input closes, so the child cannot outlive this
            # process.
            child.wait(timeout_s)
        except subprocess.TimeoutExpired as error:
            raise _too_slow(timeout_s) from error
        finally:
            child.kill()
        if child.returncode == 0 and target.is_file():
            return
        reason = child.stderr.read().decode(errors="replace").strip() if child.stderr else ""
        if child.returncode == -signal.SIGXCPU:
            raise _too_slow(timeout_s)
        if child.returncode == -signal.SIGABRT or "MemoryError" in reason:
            raise UsageError(f"compiling the module takes more than {memory_bytes >> 20} MiB of memory", hint=_SMALLER)
        if child.returncode != NO_CONTROLLER:
            raise UnavailableError(f"cannot compile the module: {reason or f'exit status {child.returncode}'}")
        raise UsageError(reason, hint="build the module with the SDK", cli_hint="`aici ctrl build` makes controllers")


def _too_slow(timeout_s: float) -> UsageError:
    return UsageError(
        f"compiling the module took more than {timeout_s:g} s",
        hint=_SMALLER,
        cli_hint=f"{_SMALLER}, or raise --wasm-max-compile-time of aici rt",
    )
