"""The store of files and batches: an SQLite file, which outlives the server. Each owner sees only its own.

files      one row a file; the bytes are in `chunks`
batches    one row a batch: `body` is what clients see, without status and counts
results    the results of a batch that has not ended, by the number of the line; (batch, number) is unique, so a
           line has one result, whatever is killed. When the batch ends, the results become files.
"""

import json
import sqlite3
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, Protocol, Self, TypeAlias

from aici_base.errors import InUseError, NotFoundError, QuotaError
from aici_engine.server.config import KeptFilesLimits
from aici_engine.server.service.database import Database

Status: TypeAlias = Literal[
    "validating", "failed", "in_progress", "finalizing", "completed", "expired", "cancelling", "cancelled"
]
Order: TypeAlias = Literal["asc", "desc"]
UNFINISHED: Final = ("validating", "in_progress", "finalizing", "cancelling")

_CHUNK_BYTES: Final = 1 << 20
_IN_MEMORY_BYTES: Final = 256 << 20
_VERSION: Final = 1
_SCHEMA: Final = """
    CREATE TABLE IF NOT EXISTS files (
        number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT UNIQUE NOT NULL, owner TEXT NOT NULL, filename TEXT NOT NULL,
        purpose TEXT NOT NULL, size_bytes INTEGER NOT NULL, created_at INTEGER NOT NULL, expires_at INTEGER NOT NULL
    );
    CREATE INDEX IF NOT EXISTS files_by_owner ON files (owner, number);
    CREATE TABLE IF NOT EXISTS chunks (
        file TEXT NOT NULL REFERENCES files (id) ON DELETE CASCADE, number INTEGER NOT NULL, data BLOB NOT NULL,
        PRIMARY KEY (file, number)
    );
    CREATE TABLE IF NOT EXISTS batches (
        number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT UNIQUE NOT NULL, owner TEXT NOT NULL, status TEXT NOT NULL,
        input_file TEXT NOT NULL, created_at INTEGER NOT NULL, expires_at INTEGER NOT NULL, output_ttl_s REAL NOT NULL,
        num_completed INTEGER NOT NULL DEFAULT 0, num_failed INTEGER NOT NULL DEFAULT 0,
        size_bytes INTEGER NOT NULL DEFAULT 0, body TEXT NOT NULL
    );
    CREATE INDEX IF NOT EXISTS batches_by_owner ON batches (owner, number);
    CREATE TABLE IF NOT EXISTS results (
        batch TEXT NOT NULL REFERENCES batches (id) ON DELETE CASCADE, number INTEGER NOT NULL,
        is_error INTEGER NOT NULL, text BLOB NOT NULL, PRIMARY KEY (batch, number)
    );
"""
_FILE: Final = "SELECT id, filename, purpose, size_bytes, created_at, expires_at FROM files"
_BATCH: Final = "SELECT id, owner, status, input_file, expires_at, num_completed, num_failed, body FROM batches"


class KeptFile(NamedTuple):
    """A file without its bytes. Times are in seconds since 1970."""

    file_id: str
    filename: str
    purpose: str
    size_bytes: int
    created_at: int
    expires_at: int


@dataclass(frozen=True, slots=True)
class KeptBatch:
    """A batch. `body`: the fields that the protocol keeps."""

    batch_id: str
    owner: str
    status: Status
    input_file: str
    expires_at: int
    num_completed: int
    num_failed: int
    body: dict[str, Any]


class Result(NamedTuple):
    """The result of line `number` of a batch."""

    number: int
    is_error: bool
    text: bytes


class Content(Protocol):
    """The bytes of a file that may be too large for the memory."""

    @property
    def size_bytes(self) -> int: ...

    def pieces(self, piece_bytes: int) -> Iterator[bytes]: ...


class BatchStore:
    """Keeps files and batches. A context manager. Without a `path`, the store ends with the process.

    Methods are called from any thread, but not from the event loop. `watch` hears of new batches and cancellations.
    Raises UnavailableError if the file cannot be used.
    """

    def __init__(
        self,
        path: Path | None = None,
        limits: KeptFilesLimits | None = None,
        *,
        clock: Callable[[], float] = time.time,
        chunk_bytes: int = _CHUNK_BYTES,
    ) -> None:
        self._chunk_bytes = chunk_bytes
        self.limits = limits or KeptFilesLimits()
        self.clock = clock
        self.watch: Callable[[], None] = lambda: None
        self._database = Database(path, schema=_SCHEMA, version=_VERSION, what="files and batches")
        self.path = self._database.path
        self.problem = self._database.problem
        if self.problem:
            # Memory is not a disk: a few uploads of today's bounds would end the process.
            self.limits = replace(
                self.limits,
                max_bytes=min(self.limits.max_bytes, _IN_MEMORY_BYTES),
                max_owner_bytes=min(self.limits.max_owner_bytes, _IN_MEMORY_BYTES // 4),
            )

    def add_file(
        self, owner: str, *, filename: str, purpose: str, content: bytes | Content, ttl_s: float | None = None
    ) -> KeptFile:
        """Keep a file. Raises QuotaError where a bound is reached."""
        size_bytes = len(content) if isinstance(content, bytes) else content.size_bytes
        with self._database.transaction() as db:
            self._forget_old(db)
            [num_files] = db.execute("SELECT count(*) FROM files WHERE owner = ?", (owner,)).fetchone()
            if num_files >= self.limits.max_owner_files:
                raise QuotaError(f"{num_files} files are kept for this key", hint="delete files that are not needed")
            self._check_room(db, owner, size_bytes)
            if isinstance(content, bytes):
                pieces: Iterator[bytes] = (
                    content[at : at + self._chunk_bytes] for at in range(0, size_bytes, self._chunk_bytes)
                )
            else:
                pieces = content.pieces(self._chunk_bytes)
            file_id = self._insert_file(db, owner, filename, purpose, pieces, ttl_s or self.limits.ttl_s)
            return KeptFile(*db.execute(f"{_FILE} WHERE id = ?", (file_id,)).fetchone())

    def file(self, owner: str, file_id: str) -> KeptFile:
        """Return a file. Raises NotFoundError if not kept for this owner."""
        with self._database.transaction() as db:
            return self._file(db, owner, file_id)

    def files(
        self, owner: str, *, purpose: str | None = None, after: str = "", limit: int = 10_000, order: Order = "desc"
    ) -> tuple[list[KeptFile], bool]:
        """Return a page of the files, and whether there are more. Raises NotFoundError for an unknown `after`."""
        with self._database.transaction() as db:
            found = db.execute(
                f"{_FILE} WHERE owner = ? AND expires_at >= ? AND purpose = ifnull(?, purpose)"
                f" AND {_after(order, 'files', after)} ORDER BY number {order} LIMIT ?",
                (owner, self.clock(), purpose, *self._cursor(db, "files", owner, after), limit + 1),
            ).fetchall()
        return [KeptFile(*row) for row in found[:limit]], len(found) > limit

    def delete_file(self, owner: str, file_id: str) -> None:
        """Forget a file. Raises InUseError if a running batch reads the file."""
        with self._database.transaction() as db:
            self._file(db, owner, file_id)
            reader = db.execute(
                f"SELECT id FROM batches WHERE input_file = ? AND status IN {UNFINISHED}", (file_id,)
            ).fetchone()
            if reader is not None:
                raise InUseError(f"the batch {reader[0]} reads the file {file_id}", hint="cancel the batch first")
            db.execute("DELETE FROM files WHERE id = ?", (file_id,))

    def chunk(self, file_id: str, number: int) -> bytes | None:
        """Return a piece of a file; None behind the last piece."""
        with self._database.transaction() as db:
            found = db.execute("SELECT data FROM chunks WHERE file = ? AND number = ?", (file_id, number)).fetchone()
        return None if found is None else bytes(found[0])

    def lines(self, file_id: str) -> Iterator[tuple[int, bytes]]:
        """Yield (number, text) of the lines of a file that are not blank. The first line is number 1."""
        rest, number, at = b"", 0, 0
        while (piece := self.chunk(file_id, at)) is not None:
            *whole, rest = (rest + piece).split(b"\n")
            for text in whole:
                number += 1
                if text.strip():
                    yield number, text
            at += 1
        if rest.strip():
            yield number + 1, rest

    def add_batch(self, owner: str, input_file: str, body: dict[str, Any], *, output_ttl_s: float | None) -> KeptBatch:
        """Keep a new batch. Raises NotFoundError without the file, QuotaError where a bound is reached."""
        now = int(self.clock())
        batch_id = f"batch_{uuid.uuid4().hex}"
        with self._database.transaction() as db:
            self._forget_old(db)
            self._file(db, owner, input_file)
            [num_running] = db.execute(
                f"SELECT count(*) FROM batches WHERE owner = ? AND status IN {UNFINISHED}", (owner,)
            ).fetchone()
            if num_running >= self.limits.max_owner_batches:
                raise QuotaError(f"{num_running} batches of this key have not ended", hint="wait, or cancel batches")
            db.execute(
                "INSERT INTO batches (id, owner, status, input_file, created_at, expires_at, output_ttl_s, body)"
                " VALUES (?, ?, 'validating', ?, ?, ?, ?, ?)",
                (
                    batch_id,
                    owner,
                    input_file,
                    now,
                    now + int(self.limits.window_s),
                    output_ttl_s or self.limits.ttl_s,
                    json.dumps({**body, "created_at": now, "expires_at": now + int(self.limits.window_s)}),
                ),
            )
            made = self._batch(db, owner, batch_id)
        self.watch()
        return made

    def batch(self, owner: str, batch_id: str) -> KeptBatch:
        """Return a batch. Raises NotFoundError if not kept for this owner."""
        with self._database.transaction() as db:
            return self._batch(db, owner, batch_id)

    def batches(self, owner: str, *, after: str = "", limit: int = 20) -> tuple[list[KeptBatch], bool]:
        """Return a page of the batches, newest first, and whether there are more."""
        with self._database.transaction() as db:
            found = db.execute(
                f"{_BATCH} WHERE owner = ? AND {_after('desc', 'batches', after)} ORDER BY number DESC LIMIT ?",
                (owner, *self._cursor(db, "batches", owner, after), limit + 1),
            ).fetchall()
        return [_batch_of(row) for row in found[:limit]], len(found) > limit

    def cancel(self, owner: str, batch_id: str) -> KeptBatch:
        """Ask for the end of a batch. Raises InUseError if the batch has ended, or is about to."""
        with self._database.transaction() as db:
            batch = self._batch(db, owner, batch_id)
            if batch.status not in ("validating", "in_progress", "cancelling"):
                raise InUseError(f"the batch {batch_id} is {batch.status}: there is nothing to cancel")
            if batch.status != "cancelling":
                self._set(db, batch, "cancelling", {"cancelling_at": int(self.clock())})
            batch = self._batch(db, owner, batch_id)
        self.watch()
        return batch

    def unfinished(self) -> list[KeptBatch]:
        """Return the batches of all owners that have not ended, oldest first."""
        with self._database.transaction() as db:
            rows = db.execute(f"{_BATCH} WHERE status IN {UNFINISHED} ORDER BY number").fetchall()
        return [_batch_of(row) for row in rows]

    def advance(self, batch: KeptBatch, status: Status, fields: Mapping[str, Any]) -> KeptBatch:
        """Give a batch a new status and further fields; return the batch. A batch that is being cancelled stays so."""
        with self._database.transaction() as db:
            now = self._batch(db, batch.owner, batch.batch_id)
            self._set(db, now, now.status if now.status == "cancelling" else status, fields)
            return self._batch(db, batch.owner, batch.batch_id)

    def finished_lines(self, batch_id: str) -> set[int]:
        """Return the numbers of the lines that have a result."""
        with self._database.transaction() as db:
            return {number for (number,) in db.execute("SELECT number FROM results WHERE batch = ?", (batch_id,))}

    def answers(self, batch_id: str) -> Iterator[bytes]:
        """Yield the results so far that are no errors, in the order of the lines."""
        query = (
            "SELECT number, text FROM results WHERE batch = ? AND number > ? AND is_error = 0 ORDER BY number LIMIT 100"
        )
        number = 0
        while True:
            with self._database.transaction() as db:
                rows = db.execute(query, (batch_id, number)).fetchall()
            if not rows:
                return
            yield from (bytes(text) for _, text in rows)
            number = rows[-1][0]

    def add_results(self, batch: KeptBatch, results: Sequence[Result]) -> None:
        """Keep results. A second result of a line is dropped. Raises QuotaError where a bound is reached."""
        with self._database.transaction() as db:
            self._check_room(db, batch.owner, sum(len(result.text) for result in results))
            for result in results:
                self._add_result(db, batch.batch_id, result)

    def finish(self, batch: KeptBatch, status: Status, fields: Mapping[str, Any], rest: Iterable[Result] = ()) -> None:
        """End a batch: its results, and `rest` for lines without a result, become an output and an error file."""
        with self._database.transaction() as db:
            for result in rest:
                self._add_result(db, batch.batch_id, result)
            made: dict[str, Any] = {}
            ttl_s: float = db.execute("SELECT output_ttl_s FROM batches WHERE id = ?", (batch.batch_id,)).fetchone()[0]
            for is_error, kind in ((0, "output"), (1, "error")):
                rows = db.execute(
                    "SELECT text FROM results WHERE batch = ? AND is_error = ? ORDER BY number",
                    (batch.batch_id, is_error),
                )
                name = f"{batch.batch_id}_{kind}.jsonl"
                pieces = _pieces((bytes(text) for (text,) in rows), self._chunk_bytes)
                if (first := next(pieces, None)) is not None:
                    whole = _chained(first, pieces)
                    made[f"{kind}_file_id"] = self._insert_file(db, batch.owner, name, "batch_output", whole, ttl_s)
            db.execute("DELETE FROM results WHERE batch = ?", (batch.batch_id,))
            db.execute("UPDATE batches SET size_bytes = 0 WHERE id = ?", (batch.batch_id,))
            self._set(db, self._batch(db, batch.owner, batch.batch_id), status, {**fields, **made})

    def close(self) -> None:
        self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _file(self, db: sqlite3.Connection, owner: str, file_id: str) -> KeptFile:
        found = db.execute(
            f"{_FILE} WHERE id = ? AND owner = ? AND expires_at >= ?", (file_id, owner, self.clock())
        ).fetchone()
        if found is None:
            raise NotFoundError(f"the file {file_id[:80]} is not kept here", hint="GET /v1/files lists the files")
        return KeptFile(*found)

    def _batch(self, db: sqlite3.Connection, owner: str, batch_id: str) -> KeptBatch:
        found = db.execute(f"{_BATCH} WHERE id = ? AND owner = ?", (batch_id, owner)).fetchone()
        if found is None:
            raise NotFoundError(f"the batch {batch_id[:80]} is not kept here", hint="GET /v1/batches lists the batches")
        return _batch_of(found)

    def _set(self, db: sqlite3.Connection, batch: KeptBatch, status: Status, fields: Mapping[str, Any]) -> None:
        body = json.dumps({**batch.body, **fields})
        db.execute("UPDATE batches SET status = ?, body = ? WHERE id = ?", (status, body, batch.batch_id))

    def _add_result(self, db: sqlite3.Connection, batch_id: str, result: Result) -> None:
        row = (batch_id, result.number, result.is_error, result.text)
        if db.execute("INSERT OR IGNORE INTO results VALUES (?, ?, ?, ?)", row).rowcount:
            counted = "num_failed" if result.is_error else "num_completed"
            db.execute(
                f"UPDATE batches SET {counted} = {counted} + 1, size_bytes = size_bytes + ? WHERE id = ?",
                (len(result.text), batch_id),
            )

    def _insert_file(
        self,
        db: sqlite3.Connection,
        owner: str,
        filename: str,
        purpose: str,
        pieces: Iterable[bytes],
        ttl_s: float,
    ) -> str:
        file_id = f"file-{uuid.uuid4().hex}"
        now = int(self.clock())
        db.execute(
            "INSERT INTO files (id, owner, filename, purpose, size_bytes, created_at, expires_at)"
            " VALUES (?, ?, ?, ?, 0, ?, ?)",
            (file_id, owner, filename, purpose, now, now + int(ttl_s)),
        )
        size_bytes = 0
        for number, piece in enumerate(pieces):
            db.execute("INSERT INTO chunks VALUES (?, ?, ?)", (file_id, number, piece))
            size_bytes += len(piece)
        db.execute("UPDATE files SET size_bytes = ? WHERE id = ?", (size_bytes, file_id))
        return file_id

    def _check_room(self, db: sqlite3.Connection, owner: str, more: int) -> None:
        """Raise QuotaError if `more` bytes do not fit."""
        total = "(SELECT total(size_bytes) FROM files {0}) + (SELECT total(size_bytes) FROM batches {0})"
        [own] = db.execute(f"SELECT {total.format('WHERE owner = :owner')}", {"owner": owner}).fetchone()
        if own + more > self.limits.max_owner_bytes:
            raise QuotaError(
                f"{more} bytes do not fit: {own:.0f} of {self.limits.max_owner_bytes} bytes of this key are taken",
                hint="delete files that are not needed",
            )
        [all_owners] = db.execute(f"SELECT {total.format('')}").fetchone()
        if all_owners + more > self.limits.max_bytes:
            raise QuotaError(f"{more} bytes do not fit: the server keeps {self.limits.max_bytes} bytes in all")

    def _forget_old(self, db: sqlite3.Connection) -> None:
        now = self.clock()
        db.execute(
            "DELETE FROM files WHERE expires_at < ?"
            f" AND id NOT IN (SELECT input_file FROM batches WHERE status IN {UNFINISHED})",
            (now,),
        )
        db.execute(
            f"DELETE FROM batches WHERE created_at < ? AND status NOT IN {UNFINISHED}", (now - self.limits.ttl_s,)
        )

    def _cursor(self, db: sqlite3.Connection, table: str, owner: str, after: str) -> Sequence[int]:
        """Return the argument of the condition `_after`."""
        if not after:
            return ()
        found = db.execute(f"SELECT number FROM {table} WHERE id = ? AND owner = ?", (after, owner)).fetchone()
        if found is None:
            raise NotFoundError(f"after: {after[:80]} is not kept here", hint="begin again without after")
        return (found[0],)


def _after(order: Order, table: str, after: str) -> str:
    if not after:
        return "1"
    return f"{table}.number {'>' if order == 'asc' else '<'} ?"


def _batch_of(row: Sequence[Any]) -> KeptBatch:
    batch_id, owner, status, input_file, expires_at, num_completed, num_failed, body = row
    return KeptBatch(batch_id, owner, status, input_file, expires_at, num_completed, num_failed, body=json.loads(body))


def _pieces(texts: Iterable[bytes], size_bytes: int) -> Iterator[bytes]:
    """Yield the same bytes in pieces of `size_bytes` or more."""
    piece = bytearray()
    for text in texts:
        piece += text
        if len(piece) >= size_bytes:
            yield bytes(piece)
            piece.clear()
    if piece:
        yield bytes(piece)


def _chained(first: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    yield first
    yield from rest
