"""The SQLite file in which several servers of a machine count what keys use. Knows no event loop and no threads."""

import contextlib
import os
import sqlite3
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from aici_engine.server.service.key_counts import Bucket

_BUSY_MS: Final = 500
_HELD_MS: Final = 10
"""A transaction waits so long for another server, which holds the file for microseconds. Once a server has held the
file for longer, as a stopped process does, the next transactions fail soon."""
_VERSION: Final = 2
_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS boots (id TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS buckets (
    name TEXT, bound TEXT, per_minute REAL NOT NULL, left_over REAL NOT NULL, at REAL NOT NULL,
    PRIMARY KEY (name, bound)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS running (
    name TEXT, server INTEGER, number INTEGER NOT NULL, PRIMARY KEY (name, server)) WITHOUT ROWID;
"""


@dataclass(slots=True)
class Changes:
    """Changes that nobody waits for. `spent` and `dropped`: of buckets, by the names of the key and the limit; a bucket
    is dropped after the spending. `running`: begun sequences less ended sequences, by the name of the key."""

    spent: defaultdict[tuple[str, str], float] = field(default_factory=lambda: defaultdict(float))
    dropped: set[tuple[str, str]] = field(default_factory=set)
    running: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))

    def __bool__(self) -> bool:
        return bool(self.spent or self.dropped or self.running)

    def add(self, later: "Changes") -> None:
        """Take over changes that came later."""
        for bucket, amount in later.spent.items():
            self.spent[bucket] += amount
        self.dropped |= later.dropped
        for name, number in later.running.items():
            self.running[name] += number


class CountsFile:
    """The counts in the file at `path`. Used by one thread at a time. The caller closes the file.

    All but `transaction` and `close` are called within a transaction. Times are of the monotonic clock, which the
    processes of a machine share; after a restart of the machine the counts begin anew. Raises OSError or sqlite3.Error
    for a file that cannot be used.
    """

    def __init__(self, path: Path, server: int, is_alive: Callable[[int], bool], clock: Callable[[], float]) -> None:
        self._server = server
        self._is_alive = is_alive
        self._clock = clock
        self._db = _opened(path)

    def close(self) -> None:
        self._db.close()

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """Write all or nothing. Raises sqlite3.Error if the file cannot be used, as when a server holds the file."""
        wait_ms = _HELD_MS
        try:
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._db.execute("COMMIT")
                wait_ms = _BUSY_MS
            except BaseException:
                if self._db.in_transaction:  # an error may have ended the transaction
                    self._db.execute("ROLLBACK")
                raise
        finally:
            self._db.execute(f"PRAGMA busy_timeout = {wait_ms}")

    def take(self, name: str, limits: Mapping[str, float], amount: float) -> dict[str, Bucket]:
        """As `KeyCounts.take`, for limits that are not None."""
        buckets = {}
        for limit, per_minute in limits.items():
            row = self._db.execute(
                "SELECT per_minute, left_over, at FROM buckets WHERE name = ? AND bound = ?", (name, limit)
            ).fetchone()
            buckets[limit] = bucket = Bucket(per_minute, per_minute, self._clock()) if row is None else Bucket(*row)
            bucket.refill(per_minute, self._clock())
            left = bucket.left - amount if bucket.left >= amount else bucket.left
            self._db.execute(
                "INSERT OR REPLACE INTO buckets VALUES (?, ?, ?, ?, ?)", (name, limit, per_minute, left, bucket.at)
            )
        return buckets

    def left(self, name: str) -> dict[str, float]:
        """As `KeyCounts.left`."""
        left: dict[str, float] = {}
        for limit, *of_bucket in self._db.execute(
            "SELECT bound, per_minute, left_over, at FROM buckets WHERE name = ?", (name,)
        ):
            bucket = Bucket(*of_bucket)
            bucket.refill(bucket.per_minute, self._clock())
            left[limit] = max(0.0, bucket.left)
        return left

    def enter(self, name: str, number: int, most: int) -> bool:
        """As `KeyCounts.enter`. The sequences of servers that have died do not count."""
        if self._running(name) + number > most:
            self._forget_dead(name)
            if self._running(name) + number > most:
                return False
        self.write(Changes(running=defaultdict(int, {name: number})))
        return True

    def write(self, changes: Changes) -> None:
        """Write changes that nobody waits for."""
        for (name, limit), amount in changes.spent.items():
            self._db.execute(
                "UPDATE buckets SET left_over = left_over - ? WHERE name = ? AND bound = ?", (amount, name, limit)
            )
        for bucket in changes.dropped:
            self._db.execute("DELETE FROM buckets WHERE name = ? AND bound = ?", bucket)
        for name, number in changes.running.items():
            self._db.execute(
                "INSERT INTO running VALUES (?, ?, ?)"
                " ON CONFLICT (name, server) DO UPDATE SET number = number + excluded.number",
                (name, self._server, number),
            )
            self._db.execute("DELETE FROM running WHERE name = ? AND server = ? AND number <= 0", (name, self._server))

    def leave_all(self) -> None:
        """Forget the sequences of this server."""
        self._db.execute("DELETE FROM running WHERE server = ?", (self._server,))

    def _running(self, name: str) -> int:
        [number] = self._db.execute("SELECT TOTAL(number) FROM running WHERE name = ?", (name,)).fetchone()
        return int(number)

    def _forget_dead(self, name: str) -> None:
        for [server] in self._db.execute("SELECT server FROM running WHERE name = ?", (name,)).fetchall():
            if not self._is_alive(server):
                self._db.execute("DELETE FROM running WHERE server = ?", (server,))


def _opened(path: Path) -> sqlite3.Connection:
    os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))  # SQLite gives its other files the same mode
    db = sqlite3.connect(path, timeout=_BUSY_MS / 1000, isolation_level=None, check_same_thread=False)
    try:
        db.executescript("PRAGMA journal_mode = WAL; PRAGMA synchronous = OFF;")
        [found] = db.execute("PRAGMA user_version").fetchone()
        if found not in (0, _VERSION):
            raise OSError(f"the file is of another version of aici ({found}, not {_VERSION})")
        db.execute("BEGIN IMMEDIATE")
        for statement in _SCHEMA.split(";"):
            db.execute(statement)
        boot = _boot()
        if db.execute("SELECT id FROM boots").fetchall() != [(boot,)]:
            for table in ("boots", "buckets", "running"):
                db.execute(f"DELETE FROM {table}")
            db.execute("INSERT INTO boots VALUES (?)", (boot,))
        db.execute(f"PRAGMA user_version = {_VERSION}")
        db.execute("COMMIT")
    except BaseException:
        db.close()
        raise
    return db


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
