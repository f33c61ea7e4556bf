"""The example file of the front door, run as a user runs the file: on a model in the process, and on a server."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.server import Server

pytestmark = pytest.mark.e2e

FILE = Path(__file__).resolve().parents[2] / "examples" / "python" / "front_door.py"
LABELS = ["model", "digits", "person", "story", "yes", "colour", "call", "error", "asyncio"]


def output(*args: str) -> list[str]:
    done = subprocess.run([sys.executable, "-P", str(FILE), *args], capture_output=True, text=True, timeout=250)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


def test_both_modes_print_the_same(server: Server) -> None:
    here = output()
    assert [line.partition(":")[0] for line in here] == LABELS
    assert output(server.url) == here
