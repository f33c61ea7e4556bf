"""Start the compiler process (`compiler_process.py`) and interpret how the process ends."""

import os
import subprocess
import sys
from pathlib import Path

from aici_base.errors import UnavailableError, UsageError

NO_CONTROLLER = os.EX_DATAERR
"""Exit status of the compiler process: the module is at fault."""

TIMEOUT_S = 60.0
"""Time limit without a flag: six times the limit of upstream AICI, whose machines had more cores."""


def compile_module(source: Path, target: Path, timeout_s: float = TIMEOUT_S) -> None:
    """Compile in a child process, which ends when this process ends. `target` appears whole or not at all.

    Raise UsageError if the module is not a controller, UnavailableError if compiling fails for another reason.
    """
    command = [sys.executable, "-P", "-m", "aici_runtime.modules.compiler_process", str(source), str(target)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as child:
        try:
            # Standard input stays open. The child ends when its standard input closes, so the child cannot outlive this
            # process.
            child.wait(timeout_s)
        except subprocess.TimeoutExpired as error:
            raise UsageError(
                f"compiling the module took more than {timeout_s:g} s",
                hint="make the module smaller",
                cli_hint="make the module smaller, or raise --wasm-max-compile-time of aici rt",
            ) from error
        finally:
            child.kill()
        if child.returncode == 0 and target.is_file():
            return
        reason = child.stderr.read().decode(errors="replace").strip() if child.stderr else ""
        if child.returncode != NO_CONTROLLER:
            raise UnavailableError(f"cannot compile the module: {reason or f'exit status {child.returncode}'}")
        raise UsageError(reason, hint="build the module with the SDK", cli_hint="`aici ctrl build` makes controllers")
