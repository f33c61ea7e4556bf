"""A folder for the sockets between the API process and the engine process. Nothing of it stays, whoever is killed."""

import contextlib
import fcntl
import os
import shutil
import tempfile
from pathlib import Path
from typing import Self

_PREFIX = "aici-sockets-"


class SocketFolder:
    """A context manager. `remove` it as soon as both sides are connected: connections need no name.

    Its owner holds a lock on it, which ends with the process. `sweep` removes what nobody holds.
    """

    def __init__(self) -> None:
        sweep()
        while True:
            # Short, because the address of a socket has 107 bytes; private, because whoever can write to it is obeyed.
            self.path = Path(tempfile.mkdtemp(prefix=_PREFIX))
            self._fd = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
            fcntl.flock(self._fd, fcntl.LOCK_EX)
            if self.path.exists():
                return
            os.close(self._fd)  # swept before it was locked

    def remove(self) -> None:
        """Idempotent."""
        if self._fd >= 0:
            shutil.rmtree(self.path, ignore_errors=True)
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.remove()


def sweep() -> None:
    """Remove the folders of this user whose processes are gone."""
    for path in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        # Gone already, locked, or somebody else's.
        with contextlib.suppress(OSError):
            fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.fstat(fd).st_uid == os.getuid():
                    shutil.rmtree(path, ignore_errors=True)
            finally:
                os.close(fd)
