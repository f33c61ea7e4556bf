"""An SQLite file that several API processes may share."""

import contextlib
import errno
import logging
import os
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Self

from aici_base.errors import UnavailableError

_BUSY_S = 10.0
_NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO)
_SQLITE_NO_ROOM: Final = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN)

_log = logging.getLogger(__name__)


class Database:
    """A file of one schema. A context manager. Without a `path`, the database is in memory and ends with the process.

    `version`: a file of another version is refused. `what` names the content in errors. Methods are called from any
    thread, but not from the event loop: a disk or another process may delay them. Raises UnavailableError if the file
    cannot be used. Exception: if the disk is full or cannot be written, the database is in memory, `path` is None, and
    `problem` says so for clients.
    """

    def __init__(self, path: Path | None, *, schema: str, version: int, what: str) -> None:
        self._lock = threading.Lock()
        self._what = what
        self.path = path
        self.problem = ""
        try:
            self._db = _opened(path, schema, version)
        except (OSError, sqlite3.Error) as error:
            if _is_lack_of_room(error):
                why = error.strerror if isinstance(error, OSError) else str(error)
                self.problem = f"{what} are kept in memory: {why}"
                _log.warning("%s cannot be written: %s", path, self.problem)
                self.path = None
                self._db = _opened(None, schema, version)
                return
            raise UnavailableError(f"cannot keep {what} in {path}: {error}", hint="name another file") from error

    @contextlib.contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Commit at the end; roll back after an exception."""
        with self._lock:
            try:
                self._db.execute("BEGIN IMMEDIATE")
                try:
                    yield self._db
                except BaseException:
                    self._db.execute("ROLLBACK")
                    raise
                self._db.execute("COMMIT")
            except sqlite3.Error as error:
                raise UnavailableError(f"the store of {self._what} failed: {error}", hint="try again") from error

    def close(self) -> None:
        with self._lock:
            self._db.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _is_lack_of_room(error: OSError | sqlite3.Error) -> bool:
    if isinstance(error, OSError):
        return error.errno in _NO_ROOM
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in _SQLITE_NO_ROOM


def _opened(path: Path | None, schema: str, version: int) -> sqlite3.Connection:
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))  # SQLite gives its other files the same mode
    db = sqlite3.connect(path or ":memory:", timeout=_BUSY_S, isolation_level=None, check_same_thread=False)
    try:
        [found] = db.execute("PRAGMA user_version").fetchone()
        if found not in (0, version):
            raise OSError(f"the file is of another version of aici ({found}, not {version})")
        db.executescript("PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; PRAGMA secure_delete = ON;")
        db.execute("PRAGMA foreign_keys = ON")
        db.executescript(f"BEGIN IMMEDIATE; {schema} PRAGMA user_version = {version}; COMMIT;")
    except BaseException:
        db.close()
        raise
    return db
