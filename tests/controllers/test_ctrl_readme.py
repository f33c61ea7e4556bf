"""Run the files and commands of `controllers/README.md` and compare the output."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

README = (Path(__file__).parents[2] / "controllers" / "README.md").read_text()
FILES = re.findall(r"into\s`([\w.]+)`:\n\n```\w+\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
SESSION = "".join(re.findall(r"^```console\n(.*?)^```", README, re.MULTILINE | re.DOTALL))
COMMANDS = re.findall(r"^\$ (.*(?:\n> .*)*)\n((?:[^$].*\n)*)", SESSION, re.MULTILINE)


def test_there_are_examples() -> None:
    assert [name for name, _ in FILES] == ["list.cpp", "list.toml"]
    assert len(COMMANDS) == 6


@pytest.mark.e2e
def test_every_step(tmp_path: Path) -> None:
    for name, text in FILES:
        (tmp_path / name).write_text(text)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    for command, output in COMMANDS:
        done = subprocess.run(
            ["bash", "-c", command.replace("\n> ", "\n")],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=100,
            input="",
            env=os.environ | {"PATH": path},
        )
        assert done.returncode == 0, done.stderr
        if "aici run" in command:
            assert re.fullmatch(r"1\. [^\n]+\n2\. [^\n]+\n3\. [^\n]+\n", done.stdout)
        else:
            assert re.sub(r"[\d,]+ bytes", "N bytes", done.stdout) == re.sub(r"[\d,]+ bytes", "N bytes", output)
