"""The parent's end of `compiler.py`."""

import os
import subprocess
import sys
from pathlib import Path

from aici_base.errors import UnavailableError, UsageError

NO_CONTROLLER = os.EX_DATAERR
"""Exit status: the module is at fault."""

TIMEOUT_S = 60.0
"""Where no flag says otherwise. Six times the original's, whose machines had more cores."""


def compile_module(source: Path, target: Path, timeout_s: float = TIMEOUT_S) -> None:
    """In a child that ends when we do. Raises UsageError for what is no controller; `target` appears whole."""
    command = [sys.executable, "-P", "-m", "aici_runtime.modules.compiler_process", str(source), str(target)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as child:
        try:
            # Standard input stays open: the child ends when it closes, which is when we do.
            child.wait(timeout_s)
        except subprocess.TimeoutExpired as error:
            hint = "make it smaller, or raise --wasm-max-compile-time"
            raise UsageError(f"compiling the module took more than {timeout_s:g} s", hint=hint) from error
        finally:
            child.kill()
        if child.returncode == 0 and target.is_file():
            return
        reason = child.stderr.read().decode(errors="replace").strip() if child.stderr else ""
        if child.returncode != NO_CONTROLLER:
            raise UnavailableError(f"cannot compile the module: {reason or f'exit status {child.returncode}'}")
        raise UsageError(reason, hint="`aici ctrl build` makes controllers")
