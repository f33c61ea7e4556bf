"""A part of tests/engine, with every model in two stages and three steps in flight. CONTRIBUTING.md tells how to run
all of tests/engine so."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MOST_TELLING = ("test_forks.py", "test_together.py", "test_logprobs.py")


@pytest.mark.timeout(600)
def test_engines_in_stages_do_what_engines_in_one_process_do() -> None:
    files = [str(ROOT / "tests/engine" / name) for name in MOST_TELLING]
    command = [sys.executable, "-m", "pytest", "-n", "0", "-s", "-p", "no:cacheprovider", *files]
    settings = {"AICI_TEST_STAGES": "2", "AICI_TEST_DEPTH": "3", "AICI_TEST_SCALE": "0.3"}
    done = subprocess.run(command, cwd=ROOT, env=os.environ | settings, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-5000:]
    assert "0 in one process" in done.stdout
