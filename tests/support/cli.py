"""The command line, run as a user runs it: a process."""

import os
import subprocess
import sys

AICI = [sys.executable, "-m", "aici_cli"]


def aici(*args: str, stdin: str = "", env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run `aici ARGS` to its end. An empty `stdin` is an empty pipe."""
    return subprocess.run(
        [*AICI, *args], input=stdin, capture_output=True, text=True, timeout=100, env=os.environ | (env or {})
    )
