"""Marks of living servers: each server locks a byte of a shared file."""

import fcntl
import os
import secrets
import struct
from pathlib import Path
from typing import Final, Self

_NUMBERS: Final = 1 << 62
"""Of a server, drawn at random: the place of the server's byte. A lock may lie beyond the end of the file."""


class ServerMark:
    """The mark of this server in the file at `path`, which is made if needed. A context manager.

    The kernel takes the lock away when the process ends, however the process ends. The lock is of the open file, so
    processes see the locks of other PID namespaces, such as those of other containers. Raises OSError for a file that
    cannot be used.
    """

    def __init__(self, path: Path) -> None:
        self.number = secrets.randbelow(_NUMBERS)
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.fcntl(self._fd, fcntl.F_OFD_SETLK, _flock(fcntl.F_WRLCK, self.number))
        except BaseException:
            os.close(self._fd)
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        os.close(self._fd)

    def is_alive(self, number: int) -> bool:
        """Return whether the server `number` lives."""
        if number == self.number:
            return True  # a lock is no obstacle to its own holder
        found = fcntl.fcntl(self._fd, fcntl.F_OFD_GETLK, _flock(fcntl.F_WRLCK, number))
        [kind] = struct.unpack_from("h", found)
        return bool(kind != fcntl.F_UNLCK)


def _flock(kind: int, place: int) -> bytes:
    """Return a `struct flock` for the byte at `place`, as Linux has it on 64-bit processors; see fcntl(2)."""
    return struct.pack("hhqqi0q", kind, os.SEEK_SET, place, 1, 0)
