"""A temporary folder for the sockets between the two processes. It is removed even if a process was killed."""

import contextlib
import fcntl
import os
import shutil
import tempfile
from pathlib import Path
from typing import Self

_PREFIX = "aici-sockets-"


class SocketFolder:
    """A private folder, locked by its owner. A context manager.

    Call `remove` as soon as both sides are connected: open connections do not need the folder. The lock ends with the
    owner's process, so `sweep` can remove the folders of dead processes.
    """

    def __init__(self) -> None:
        sweep()
        while True:
            # The path is short: a socket address has at most 107 bytes. The folder is private: the engine obeys anybody
            # with access to the socket.
            self.path = Path(tempfile.mkdtemp(prefix=_PREFIX))
            self._fd = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
            fcntl.flock(self._fd, fcntl.LOCK_EX)
            if self.path.exists():
                return
            os.close(self._fd)  # another process swept the folder before the lock was taken

    def remove(self) -> None:
        """Remove the folder. Idempotent."""
        if self._fd >= 0:
            shutil.rmtree(self.path, ignore_errors=True)
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.remove()


def sweep() -> None:
    """Remove this user's folders whose owners are dead."""
    for path in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        # OSError: removed meanwhile, locked by a living process, or owned by another user.
        with contextlib.suppress(OSError):
            fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.fstat(fd).st_uid == os.getuid():
                    shutil.rmtree(path, ignore_errors=True)
            finally:
                os.close(fd)
