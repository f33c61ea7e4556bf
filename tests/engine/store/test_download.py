"""Downloads from a server on this machine that breaks connections off, with ranges and without."""

import hashlib
import random
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from aici_engine.store.download import SourceError, download

CONTENT = random.Random(0).randbytes(1 << 20)
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@dataclass
class Source:
    """`breaks`: after how many bytes the next answers break off. `starts`: where the answers so far began."""

    url: str
    breaks: list[int] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    has_ranges: bool = True
    status: int = 0


@contextmanager
def serving() -> Iterator[Source]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if source.status:
                return self.send_error(source.status)
            found = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", "")) if source.has_ranges else None
            start = int(found[1]) if found else 0
            source.starts.append(start)
            if start >= len(CONTENT):
                return self.send_error(416)
            self.send_response(206 if found else 200)
            self.send_header("Content-Length", str(len(CONTENT) - start))
            self.end_headers()
            limit = source.breaks.pop(0) if source.breaks else len(CONTENT)
            self.wfile.write(CONTENT[start : start + limit])
            return None

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        source = Source(f"http://127.0.0.1:{server.server_port}/file")
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield source
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def source() -> Iterator[Source]:
    with serving() as source:
        yield source


def test_a_download_tells_how_far_it_is(source: Source, tmp_path: Path) -> None:
    told: list[tuple[int, int | None]] = []
    download(source.url, tmp_path / "file", sha256=SHA256, progress=lambda *told_now: told.append(told_now))
    assert (tmp_path / "file").read_bytes() == CONTENT
    assert (told[0], told[-1]) == ((0, len(CONTENT)), (len(CONTENT), len(CONTENT)))
    assert told == sorted(told)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_broken_connection_is_continued(source: Source, tmp_path: Path) -> None:
    source.breaks = [1000, 5000]
    download(source.url, tmp_path / "file", sha256=SHA256)
    assert (tmp_path / "file").read_bytes() == CONTENT
    assert source.starts == [0, 1000, 6000]


def test_the_part_of_an_earlier_process_is_continued(source: Source, tmp_path: Path) -> None:
    source.breaks = [1000, 0, 0, 0]
    with pytest.raises(SourceError, match="broke off"):
        download(source.url, tmp_path / "file", sha256=SHA256)
    assert [(path.name, path.stat().st_size) for path in tmp_path.iterdir()] == [("file.part", 1000)]
    source.breaks, source.starts = [], []
    told: list[tuple[int, int | None]] = []
    download(source.url, tmp_path / "file", sha256=SHA256, progress=lambda *told_now: told.append(told_now))
    assert (source.starts, told[0]) == ([1000], (1000, len(CONTENT)))
    assert (tmp_path / "file").read_bytes() == CONTENT


def test_a_complete_part_is_only_checked(source: Source, tmp_path: Path) -> None:
    (tmp_path / "file.part").write_bytes(CONTENT)
    download(source.url, tmp_path / "file", sha256=SHA256)
    assert (tmp_path / "file").read_bytes() == CONTENT


def test_a_server_without_ranges_starts_anew(source: Source, tmp_path: Path) -> None:
    source.has_ranges, source.breaks = False, [1000]
    download(source.url, tmp_path / "file", sha256=SHA256)
    assert (tmp_path / "file").read_bytes() == CONTENT


@pytest.mark.parametrize("part", [b"", b"of another file"])
def test_a_wrong_file_is_refused_and_deleted(source: Source, tmp_path: Path, part: bytes) -> None:
    if part:
        (tmp_path / "file.part").write_bytes(part)
    with pytest.raises(SourceError, match="not the pinned") as error:
        download(source.url, tmp_path / "file", sha256=SHA256 if part else "0" * 64)
    assert error.value.is_wrong_file
    assert not list(tmp_path.iterdir())


def test_a_missing_file_is_an_error(source: Source, tmp_path: Path) -> None:
    source.status = 404
    with pytest.raises(SourceError, match="404"):
        download(source.url, tmp_path / "file", sha256=SHA256)
