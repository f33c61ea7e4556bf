"""The SDK built natively with sanitizers: a short version of `make native` for every target."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

_RUN = Path(__file__).resolve().parents[2] / "controllers" / "sdk" / "native" / "run.py"


def _run(*arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(_RUN), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=900, env=os.environ | env)


@pytest.mark.timeout(900)
@pytest.mark.skipif(shutil.which("g++") is None and shutil.which("clang++") is None, reason="no native C++ compiler")
def test_constraints_hold_under_sanitizers() -> None:
    done = _run("check", "regex", "--changes", "300")
    assert done.returncode == 0, done.stderr
    assert "inputs and 300 changes of them" in done.stdout


def test_every_target_has_seeds() -> None:
    native = _RUN.parent
    targets = {path.stem for path in (native / "fuzz").glob("*.cpp")}
    assert targets
    assert targets == {path.name for path in (native / "corpus").iterdir() if any(path.iterdir())}


def test_what_is_missing_is_named() -> None:
    done = _run("check", "regex", PATH="/nonexistent", CXX="")
    assert done.returncode == 1
    assert "no native C++ compiler is here" in done.stderr
    assert "install g++ or clang" in done.stderr
    done = _run("check", "poetry")
    assert done.returncode == 2
    assert "no fuzz target is called 'poetry'" in done.stderr
