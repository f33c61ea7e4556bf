"""A store whose file cannot be written for lack of room is kept in memory; other failures are errors."""

from pathlib import Path

import pytest

from aici_base.errors import UnavailableError
from aici_engine.server.service.batch_store import BatchStore
from aici_engine.server.service.response_store import ResponseStore

FULL = Path("/dev/full")
"""Every write fails as on a full disk."""


def test_a_store_on_a_full_disk_is_in_memory() -> None:
    with ResponseStore(FULL) as responses, BatchStore(FULL) as batches:
        assert responses.problem == "responses are kept in memory: database or disk is full"
        assert batches.problem == "files and batches are kept in memory: database or disk is full"
        assert batches.path is None
        kept = batches.add_file("a", filename="b", purpose="batch", content=b"c")
        assert batches.chunk(kept.file_id, 0) == b"c"


def test_a_store_with_room_has_no_problem(tmp_path: Path) -> None:
    with BatchStore(tmp_path / "batches.db") as batches, ResponseStore() as responses:
        assert (batches.problem, responses.problem) == ("", "")
        assert batches.path == tmp_path / "batches.db"


def test_a_file_that_is_no_store_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no database" * 100)
    for path in (tmp_path, tmp_path / "text"):
        with pytest.raises(UnavailableError, match="cannot keep responses in"):
            ResponseStore(path)
