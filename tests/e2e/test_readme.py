"""What the README shows works as it is written there."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from aici_controllers.catalog import guest_path
from tests.support.server import Server

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
_SHOWN = re.findall(r"^\$ ((?:.*\\\n)*.*)$", README, re.MULTILINE)
_SERVER = "http://127.0.0.1:4242"
COMMANDS = [command for command in _SHOWN if "aici run" in command and _SERVER not in command]
SERVER_COMMANDS = [command for command in _SHOWN if _SERVER in command]
PROGRAMS = re.findall(r"^```python\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Holds the files that the examples name."""
    shutil.copy(guest_path("regex"), tmp_path / "my.wasm")
    (tmp_path / "rules.txt").write_text("[a-z ]{5,20}")
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    return tmp_path


def run(command: list[str], folder: Path, **env: str) -> subprocess.CompletedProcess[str]:
    env["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=100, input="", env=os.environ | env
    )


def test_there_are_examples() -> None:
    assert len(COMMANDS) >= 5
    assert len(SERVER_COMMANDS) == 2
    assert len(PROGRAMS) == 1


@pytest.mark.parametrize("command", COMMANDS)
def test_commands(command: str, folder: Path, server: Server) -> None:
    """On a server that is up already, which says the same as the process itself: `test_remote.py`."""
    done = run(["bash", "-c", command], folder, AICI_API_BASE=server.url)
    assert done.returncode == 0, done.stderr
    assert done.stdout or (folder / "answer.json").stat().st_size


@pytest.mark.parametrize("command", SERVER_COMMANDS)
def test_commands_to_a_server(command: str, folder: Path, server: Server) -> None:
    done = run(["bash", "-c", command.replace(_SERVER, server.url)], folder)
    assert done.returncode == 0, done.stderr
    assert done.stdout
    if "curl" in command:
        assert json.loads(done.stdout)["choices"][0]["message"]["content"] in ("yes", "no")


@pytest.mark.parametrize("program", PROGRAMS)
def test_programs(program: str, folder: Path) -> None:
    done = run([sys.executable, "-c", program], folder)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) >= 3


def test_make_run_prints_what_the_readme_says() -> None:
    """The block at the top: the command line that `make run` ends with, and its answer."""
    command, answer = re.findall(r"^\.venv/bin/(aici run .*)\n(.*)$", README, re.MULTILINE)[0]
    makefile = (Path(__file__).parents[2] / "Makefile").read_text()
    assert command.replace("$", "$$") in makefile
    done = run(["bash", "-c", command], Path.cwd())
    assert done.stdout == answer
