"""Run the command line as a user does: as a process."""

import os
import subprocess
import sys
from pathlib import Path

AICI = [sys.executable, "-P", "-m", "aici_cli"]
"""`-P`: like the installed program, Python imports nothing from the current folder."""


def aici(
    *args: str, stdin: str = "", env: dict[str, str] | None = None, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run `aici ARGS` to its end. An empty `stdin` is an empty pipe."""
    whole = os.environ | (env or {})
    return subprocess.run([*AICI, *args], input=stdin, capture_output=True, text=True, timeout=280, env=whole, cwd=cwd)
