"""Files and batches are kept for their owner, within bounds, and a line has one result."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aici_base.errors import InUseError, NotFoundError, QuotaError, UnavailableError
from aici_engine.server.config import KeptFilesLimits
from aici_engine.server.service.batch_store import BatchStore, KeptFile, Result

_BODY: dict[str, Any] = {"endpoint": "/v1/completions"}


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def _add(store: BatchStore, content: bytes = b"a\nb\n", owner: str = "alice") -> KeptFile:
    return store.add_file(owner, filename="in.jsonl", purpose="batch", content=content)


def _content(store: BatchStore, file_id: str) -> bytes:
    pieces = []
    while (piece := store.chunk(file_id, len(pieces))) is not None:
        pieces.append(piece)
    return b"".join(pieces)


@given(st.lists(st.sampled_from([b"a", b"\n", b"long line", b" ", b"\r\n"]), max_size=30))
def test_lines_are_those_of_the_file(pieces: list[bytes]) -> None:
    content = b"".join(pieces)
    expected = [(i, text) for i, text in enumerate(content.split(b"\n"), 1) if text.strip()]
    with BatchStore(chunk_bytes=3) as store:
        file = _add(store, content)
        assert _content(store, file.file_id) == content
        assert list(store.lines(file.file_id)) == expected


def test_an_owner_sees_its_own_files() -> None:
    with BatchStore() as store:
        files = [_add(store) for _ in range(3)]
        other = _add(store, owner="bob")
        ids = [file.file_id for file in files]
        assert [file.file_id for file in store.files("alice")[0]] == ids[::-1]
        assert [file.file_id for file in store.files("alice", order="asc", limit=2)[0]] == ids[:2]
        assert store.files("alice", order="asc", limit=2)[1]
        assert [file.file_id for file in store.files("alice", order="asc", after=ids[0])[0]] == ids[1:]
        assert [file.file_id for file in store.files("alice", after=ids[2])[0]] == ids[1::-1]
        assert store.files("alice", purpose="batch_output") == ([], False)
        for call in (store.file, store.delete_file):
            with pytest.raises(NotFoundError):
                call("alice", other.file_id)
        with pytest.raises(NotFoundError):
            store.files("alice", after=other.file_id)
        store.delete_file("bob", other.file_id)
        assert store.chunk(other.file_id, 0) is None


def test_bounds_refuse_and_deleting_makes_room() -> None:
    limits = KeptFilesLimits(max_bytes=300, max_owner_bytes=200, max_owner_files=3)
    with BatchStore(limits=limits) as store:
        first = _add(store, b"x" * 150)
        with pytest.raises(QuotaError, match="of this key"):
            _add(store, b"x" * 51)
        _add(store, b"x" * 120, owner="bob")
        with pytest.raises(QuotaError, match="the server keeps 300 bytes"):
            _add(store, b"x" * 40)
        store.delete_file("alice", first.file_id)
        for _ in range(3):
            _add(store, b"x")
        with pytest.raises(QuotaError, match="3 files are kept"):
            _add(store, b"x")


def test_files_and_batches_end_with_their_time() -> None:
    clock = Clock()
    with BatchStore(limits=KeptFilesLimits(ttl_s=100), clock=clock) as store:
        file = _add(store)
        short = store.add_file("alice", filename="a", purpose="batch", content=b"a", ttl_s=10)
        batch = store.add_batch("alice", file.file_id, _BODY, output_ttl_s=None)
        clock.now += 50
        with pytest.raises(NotFoundError):
            store.file("alice", short.file_id)
        assert [each.file_id for each in store.files("alice")[0]] == [file.file_id]
        clock.now += 100
        _add(store)
        assert list(store.lines(file.file_id)), "a batch that has not ended keeps its file"
        store.finish(batch, "completed", {}, [Result(1, False, b"r\n")])
        output = store.batch("alice", batch.batch_id).body["output_file_id"]
        assert _content(store, output) == b"r\n"
        clock.now += 101
        _add(store)
        assert not list(store.lines(file.file_id))
        assert _content(store, output) == b""
        with pytest.raises(NotFoundError):
            store.batch("alice", batch.batch_id)


def test_a_line_has_one_result_and_files_have_the_order_of_the_lines() -> None:
    with BatchStore() as store:
        batch = store.add_batch("alice", _add(store).file_id, _BODY, output_ttl_s=None)
        store.add_results(batch, [Result(3, False, b"three\n"), Result(1, False, b"one\n"), Result(2, True, b"two\n")])
        store.add_results(batch, [Result(3, True, b"again\n")])
        assert store.finished_lines(batch.batch_id) == {1, 2, 3}
        now = store.batch("alice", batch.batch_id)
        assert (now.num_completed, now.num_failed) == (2, 1)
        store.finish(batch, "expired", {"expired_at": 7}, [Result(1, True, b"again\n"), Result(4, True, b"four\n")])
        done = store.batch("alice", batch.batch_id)
        assert (done.status, done.num_completed, done.num_failed, done.body["expired_at"]) == ("expired", 2, 2, 7)
        assert _content(store, done.body["output_file_id"]) == b"one\nthree\n"
        assert _content(store, done.body["error_file_id"]) == b"two\nfour\n"
        assert store.file("alice", done.body["error_file_id"]).purpose == "batch_output"
        assert store.unfinished() == []


def test_batches_have_owners_bounds_and_one_end() -> None:
    with BatchStore(limits=KeptFilesLimits(max_owner_batches=2)) as store:
        file = _add(store)
        batches = [store.add_batch("alice", file.file_id, _BODY, output_ttl_s=None) for _ in range(2)]
        with pytest.raises(QuotaError):
            store.add_batch("alice", file.file_id, _BODY, output_ttl_s=None)
        with pytest.raises(NotFoundError):
            store.add_batch("bob", file.file_id, _BODY, output_ttl_s=None)
        for call in (store.batch, store.cancel):
            with pytest.raises(NotFoundError):
                call("bob", batches[0].batch_id)
        with pytest.raises(InUseError, match="reads the file"):
            store.delete_file("alice", file.file_id)
        assert store.cancel("alice", batches[0].batch_id).status == "cancelling"
        assert store.cancel("alice", batches[0].batch_id).status == "cancelling"
        assert store.advance(batches[0], "in_progress", {}).status == "cancelling"
        store.finish(batches[0], "cancelled", {})
        with pytest.raises(InUseError, match="is cancelled"):
            store.cancel("alice", batches[0].batch_id)
        page, has_more = store.batches("alice", limit=1)
        assert ([each.batch_id for each in page], has_more) == ([batches[1].batch_id], True)
        page, has_more = store.batches("alice", after=batches[1].batch_id)
        assert ([each.status for each in page], has_more) == (["cancelled"], False)


def test_results_that_do_not_fit() -> None:
    with BatchStore(limits=KeptFilesLimits(max_owner_bytes=100)) as store:
        batch = store.add_batch("alice", _add(store, b"x" * 50).file_id, _BODY, output_ttl_s=None)
        store.add_results(batch, [Result(1, False, b"y" * 40)])
        with pytest.raises(QuotaError):
            store.add_results(batch, [Result(2, False, b"y" * 20)])
        assert store.finished_lines(batch.batch_id) == {1}


def test_a_store_is_read_again_and_another_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "batches.db"
    with BatchStore(path) as store:
        batch = store.add_batch("alice", _add(store).file_id, _BODY, output_ttl_s=None)
        store.add_results(batch, [Result(1, False, b"one\n")])
    assert path.stat().st_mode & 0o777 == 0o600
    with BatchStore(path) as store:
        assert [each.batch_id for each in store.unfinished()] == [batch.batch_id]
        assert store.finished_lines(batch.batch_id) == {1}
    other = tmp_path / "other.db"
    other.write_text("no database" * 100)
    with pytest.raises(UnavailableError, match="files and batches"):
        BatchStore(other)
