"""The store of responses for later reference by clients: an SQLite file, shared by the servers of a machine.

An owner sees the owner's responses only. A response refers to the previous response of its conversation, so the items
of a conversation are kept once.

    responses    one row a response: JSON without the output, `used_at`, and the size
    items        input items and output items, in order; gone with the response
"""

import asyncio
import json
import sqlite3
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from aici_base.errors import NotFoundError, UsageError
from aici_engine.server.config import KeptResponsesLimits
from aici_engine.server.service.database import Database

_VERSION = 1
_SCHEMA = """
    CREATE TABLE IF NOT EXISTS responses (
        id TEXT PRIMARY KEY, owner TEXT NOT NULL, previous TEXT, body TEXT NOT NULL, used_at REAL NOT NULL,
        size_bytes INTEGER NOT NULL
    );
    CREATE INDEX IF NOT EXISTS by_use ON responses (owner, used_at, size_bytes);
    CREATE TABLE IF NOT EXISTS items (
        response TEXT NOT NULL REFERENCES responses ON DELETE CASCADE, number INTEGER NOT NULL,
        is_output INTEGER NOT NULL, id TEXT NOT NULL, item TEXT NOT NULL, PRIMARY KEY (response, number)
    );
    CREATE INDEX IF NOT EXISTS by_id ON items (id);
"""
_CHAIN = """
    WITH RECURSIVE chain (id, previous, body, depth) AS (
        SELECT id, previous, body, 0 FROM responses WHERE id = :id AND owner = :owner AND used_at >= :oldest
        UNION ALL
        SELECT responses.id, responses.previous, responses.body, depth + 1
        FROM chain JOIN responses ON responses.id = chain.previous AND owner = :owner
    )
    SELECT id, previous, body FROM chain ORDER BY depth DESC
"""


@dataclass(frozen=True, slots=True)
class KeptResponse:
    """An ended response, the input items of the request, and the id of the previous response."""

    body: dict[str, Any]
    input_items: Sequence[dict[str, Any]]
    previous: str | None = None


class ResponseStore:
    """Keeps responses. A context manager. Without a `path`, the store ends with the process.

    Every method but `close` runs in a thread, because a disk or another process may delay it. Raises UnavailableError
    if the file cannot be used.
    """

    def __init__(
        self,
        path: Path | None = None,
        limits: KeptResponsesLimits | None = None,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._limits = limits or KeptResponsesLimits()
        self._clock = clock
        self._database = Database(path, schema=_SCHEMA, version=_VERSION, what="responses")
        self.problem = self._database.problem

    async def keep(self, owner: str, response: KeptResponse) -> None:
        """Keep a response. Forgets other responses if need be; a response larger than a bound is not kept."""
        await asyncio.to_thread(self._keep, owner, response)

    async def response(self, owner: str, response_id: str) -> dict[str, Any]:
        """Return a response. Raises NotFoundError if not kept for this owner."""
        return await asyncio.to_thread(self._response, owner, response_id)

    async def delete(self, owner: str, response_id: str) -> None:
        """Forget a response. Raises NotFoundError if not kept for this owner."""
        await asyncio.to_thread(self._delete, owner, response_id)

    async def conversation(self, owner: str, response_id: str) -> list[dict[str, Any]]:
        """Return all items of a conversation, up to and with a response's output.

        Raises NotFoundError if the response, or a previous response, is not kept for this owner.
        """
        return await asyncio.to_thread(self._conversation, owner, response_id, with_output=True)

    async def input_items(self, owner: str, response_id: str) -> list[dict[str, Any]]:
        """Return all items of a conversation before a response's output."""
        return await asyncio.to_thread(self._conversation, owner, response_id, with_output=False)

    async def item(self, owner: str, item_id: str) -> dict[str, Any]:
        """Return an item of a kept response. Raises UsageError if not kept for this owner."""
        return await asyncio.to_thread(self._item, owner, item_id)

    def close(self) -> None:
        self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _keep(self, owner: str, response: KeptResponse) -> None:
        body = {name: field for name, field in response.body.items() if name != "output"}
        items = [*((0, item) for item in response.input_items), *((1, item) for item in response.body["output"])]
        rows = [(body["id"], i, kind, item["id"], json.dumps(item)) for i, (kind, item) in enumerate(items)]
        text = json.dumps(body)
        size_bytes = len(text) + sum(len(row[-1]) for row in rows)
        if size_bytes > min(self._limits.max_owner_bytes, self._limits.max_bytes):
            return
        with self._database.transaction() as db:
            db.execute(
                "INSERT INTO responses VALUES (?, ?, ?, ?, ?, ?)",
                (body["id"], owner, response.previous, text, self._clock(), size_bytes),
            )
            db.executemany("INSERT INTO items VALUES (?, ?, ?, ?, ?)", rows)
            self._make_room(db, owner)

    def _make_room(self, db: sqlite3.Connection, owner: str) -> None:
        limits = self._limits
        db.execute("DELETE FROM responses WHERE used_at < ?", (self._oldest(),))
        total = "SELECT count(*), total(size_bytes) FROM responses"
        num, size_bytes = db.execute(f"{total} WHERE owner = ?", (owner,)).fetchone()
        while num > limits.max_owner_responses or size_bytes > limits.max_owner_bytes:
            size_bytes -= _forget_oldest(db, owner)
            num -= 1
        _, size_bytes = db.execute(total).fetchone()
        while size_bytes > limits.max_bytes:
            by_size = "SELECT owner FROM responses GROUP BY owner ORDER BY sum(size_bytes) DESC LIMIT 1"
            size_bytes -= _forget_oldest(db, db.execute(by_size).fetchone()[0])

    def _response(self, owner: str, response_id: str) -> dict[str, Any]:
        with self._database.transaction() as db:
            *_, (_, _, body) = self._chain(db, owner, response_id)
            return {**json.loads(body), "output": _items(db, response_id, is_output=1)}

    def _delete(self, owner: str, response_id: str) -> None:
        with self._database.transaction() as db:
            self._chain(db, owner, response_id)
            db.execute("DELETE FROM responses WHERE id = ?", (response_id,))

    def _conversation(self, owner: str, response_id: str, *, with_output: bool) -> list[dict[str, Any]]:
        with self._database.transaction() as db:
            chain = self._chain(db, owner, response_id)
            if (missing := chain[0][1]) is not None:
                raise self._missing(missing, f", which comes before {response_id}, is not kept any more")
            earlier = [item for each, _, _ in chain[:-1] for item in _items(db, each)]
            return earlier + _items(db, response_id, is_output=None if with_output else 0)

    def _item(self, owner: str, item_id: str) -> dict[str, Any]:
        with self._database.transaction() as db:
            found = db.execute(
                "SELECT item FROM items JOIN responses ON responses.id = response"
                " WHERE items.id = ? AND owner = ? AND used_at >= ? LIMIT 1",
                (item_id, owner, self._oldest()),
            ).fetchone()
        if found is None:
            raise UsageError(f"the item {item_id[:80]} is not kept here", hint="send the item itself")
        item: dict[str, Any] = json.loads(found[0])
        return item

    def _chain(self, db: sqlite3.Connection, owner: str, response_id: str) -> list[tuple[str, str | None, str]]:
        """Return (id, previous id, body) of a response and of all previous responses, oldest first. All count as used.

        Raises NotFoundError if the response is not kept for this owner.
        """
        chain = db.execute(_CHAIN, {"id": response_id, "owner": owner, "oldest": self._oldest()}).fetchall()
        if not chain:
            raise self._missing(response_id, " is not kept here")
        now = self._clock()
        db.executemany("UPDATE responses SET used_at = ? WHERE id = ?", [(now, each) for each, _, _ in chain])
        return chain

    def _oldest(self) -> float:
        return self._clock() - self._limits.ttl_s

    def _missing(self, response_id: str, what: str) -> NotFoundError:
        days = self._limits.ttl_s / 86400
        return NotFoundError(
            f"the response {response_id[:80]}{what}",
            hint=f"responses created with `store` are kept for {days:g} days after their last use, within bounds",
        )


def _items(db: sqlite3.Connection, response_id: str, *, is_output: int | None = None) -> list[dict[str, Any]]:
    """Return the items of a response: input (0), output (1) or all (None)."""
    rows = db.execute("SELECT is_output, item FROM items WHERE response = ? ORDER BY number", (response_id,))
    return [json.loads(item) for kind, item in rows if is_output in (None, kind)]


def _forget_oldest(db: sqlite3.Connection, owner: str) -> int:
    """Forget the least recently used response of `owner`. Return the size."""
    oldest = "SELECT rowid FROM responses WHERE owner = ? ORDER BY used_at, rowid LIMIT 1"
    found = db.execute(f"DELETE FROM responses WHERE rowid = ({oldest}) RETURNING size_bytes", (owner,)).fetchall()
    return int(found[0][0])
