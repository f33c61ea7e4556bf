"""`make run` prints the answer that the README shows. `tests/docs` runs the other blocks of the README."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).parents[2]


def test_make_run_prints_what_the_readme_says() -> None:
    """The block at the top of the README: the command line that `make run` ends with, and the answer."""
    readme = (ROOT / "README.md").read_text()
    command, answer = re.findall(r"^\.venv/bin/(aici run .*)\n(.*)$", readme, re.MULTILINE)[0]
    assert command.replace("$", "$$") in (ROOT / "Makefile").read_text()
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, timeout=100, input="", env=os.environ | {"PATH": path}
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == answer
