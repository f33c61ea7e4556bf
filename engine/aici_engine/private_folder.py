"""A temporary folder of one process, such as for sockets; removed even if the process was killed."""

import contextlib
import fcntl
import os
import shutil
import tempfile
from pathlib import Path
from typing import Self


class PrivateFolder:
    """A folder that only this user can enter, locked by its owner. A context manager.

    The lock ends with the owner's process, so `sweep` can remove the folders of dead processes; each new folder sweeps
    its prefix. The path is short, since a socket's address has at most 107 bytes.

    >>> with PrivateFolder("aici-sockets-") as folder:
    ...     (folder.path / "requests").touch()
    """

    def __init__(self, prefix: str) -> None:
        sweep(prefix)
        while True:
            self.path = Path(tempfile.mkdtemp(prefix=prefix))
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


def sweep(prefix: str) -> None:
    """Remove this user's folders of the prefix whose owners are dead."""
    for path in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        # OSError: removed meanwhile, locked by a living process, or owned by another user.
        with contextlib.suppress(OSError):
            fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.fstat(fd).st_uid == os.getuid():
                    shutil.rmtree(path, ignore_errors=True)
            finally:
                os.close(fd)
