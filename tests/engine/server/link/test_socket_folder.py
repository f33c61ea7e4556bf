"""Socket folders: a folder in use stays, and the folder of a killed process is swept."""

import subprocess
import sys
import tempfile
from pathlib import Path

from aici_engine.server.link.socket_folder import SocketFolder, sweep


def test_a_folder_is_private_and_goes_when_it_is_told_to() -> None:
    with SocketFolder() as folder:
        assert folder.path.stat().st_mode & 0o777 == 0o700
        sweep()
        assert folder.path.exists()
        folder.remove()
        assert not folder.path.exists()


def test_the_folder_of_a_killed_process_is_swept() -> None:
    script = (
        "import os, signal; from aici_engine.server.link.socket_folder import SocketFolder; folder = SocketFolder();"
        "(folder.path / 'r').touch(); print(folder.path, flush=True); os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    left = Path(done.stdout.strip())
    assert left.parent == Path(tempfile.gettempdir())
    with SocketFolder() as mine:
        assert not left.exists()
        assert mine.path.exists()
