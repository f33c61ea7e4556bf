"""Private folders: a folder in use stays, and the folder of a killed process is swept."""

import fcntl
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from aici_engine.private_folder import PrivateFolder, sweep

_PREFIX = f"aici-test-private-{os.getpid()}-"


def test_a_folder_is_private_and_goes_when_it_is_told_to() -> None:
    with PrivateFolder(_PREFIX) as folder:
        assert folder.path.stat().st_mode & 0o777 == 0o700
        sweep(_PREFIX)
        assert folder.path.exists()
        folder.remove()
        assert not folder.path.exists()


def test_the_folder_of_a_killed_process_is_swept() -> None:
    script = (
        "import os, signal, sys; from aici_engine.private_folder import PrivateFolder;"
        "folder = PrivateFolder(sys.argv[1]); (folder.path / 'r').touch(); print(folder.path, flush=True);"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run([sys.executable, "-c", script, _PREFIX], capture_output=True, text=True, timeout=60)
    left = Path(done.stdout.strip())
    assert left.parent == Path(tempfile.gettempdir())
    with PrivateFolder(_PREFIX) as mine:
        assert not left.exists()
        assert mine.path.exists()


def test_a_folder_that_is_swept_before_it_is_locked_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    swept = []

    def sweep_first(fd: int, how: int) -> None:
        monkeypatch.undo()
        swept.append(Path(os.readlink(f"/proc/self/fd/{fd}")))
        swept[0].rmdir()

    monkeypatch.setattr(fcntl, "flock", sweep_first)
    with PrivateFolder(_PREFIX) as folder:
        assert folder.path.exists()
        assert [folder.path] != swept
