"""The files of `aici batch`: after a kill at any byte, every line has exactly one result."""

import io
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aici_base.errors import AiciError, InUseError, NotFoundError, UsageError
from aici_cli.batch_files import BatchInput, BatchOutput
from aici_engine.server.batches.line import Answer, failure, result
from tests.support.batch_lines import chat_line, jsonl, results

IDS = ["a", "ä\n", '"', "b" * 40]


def _results(ids: list[str]) -> list[bytes]:
    return [result(each, Answer(200 if i % 2 else 404, b'{"text":"\xc3\xa4"}', "r")) for i, each in enumerate(ids)]


def _go_on(path: Path, ids: list[str]) -> None:
    """Do what a second run does."""
    with BatchOutput(path) as output:
        for each in _results([each for each in ids if each not in output.finished]):
            output.append([each])


@pytest.fixture(scope="module")
def memory() -> Iterator[Path]:
    """A folder in memory: thousands of synchronisations with a disk take a minute."""
    with TemporaryDirectory(dir="/dev/shm", prefix="batch-") as folder:
        yield Path(folder)


def test_a_run_goes_on_after_a_kill_at_every_byte(memory: Path) -> None:
    whole = b"".join(_results(IDS))
    ends = [i + 1 for i, byte in enumerate(whole) if byte == 10]
    path = memory / "every-byte"
    for cut in range(len(whole) + 1):
        path.write_bytes(whole[:cut])
        with BatchOutput(path) as output:
            finished = [end for end in ends if end <= cut]
            assert list(output.finished) == IDS[: len(finished)]
            assert path.stat().st_size == (finished[-1] if finished else 0)
        _go_on(path, IDS)
        assert results(path.read_bytes()).keys() == set(IDS)


@given(
    st.lists(st.text(min_size=1).filter(lambda text: text.isprintable()), unique=True, max_size=6),
    st.lists(st.floats(0, 1), max_size=5),
    st.integers(0, 9),
)
def test_a_run_goes_on_after_many_kills(memory: Path, ids: list[str], kills: list[float], num_zeros: int) -> None:
    """Some file systems leave zeros where a write was lost."""
    path = memory / "many-kills"
    path.unlink(missing_ok=True)
    for kill in kills:
        _go_on(path, ids)
        whole = path.read_bytes()
        path.write_bytes(whole[: int(kill * len(whole))] + b"\0" * num_zeros)
    _go_on(path, ids)
    assert results(path.read_bytes()).keys() == set(ids)


def test_results_tell_errors_from_answers(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_bytes(b"".join([*_results(["a", "b"]), failure("c", "batch_expired", "late")]))
    with BatchOutput(path) as output:
        assert output.finished == {"a": True, "b": False, "c": True}


def test_errors_are_removed_to_be_tried_again(tmp_path: Path) -> None:
    path = tmp_path / "out"
    (tmp_path / "link").symlink_to(path)
    lines = _results(list("abcd"))
    path.write_bytes(b"".join([*lines, failure("e", "batch_expired", "late"), b'{"id"']))
    path.chmod(0o640)
    with BatchOutput(tmp_path / "link") as output:
        output.drop_errors()
        assert output.finished == {"b": False, "d": False}
        assert path.read_bytes() == lines[1] + lines[3]
        with pytest.raises(InUseError):
            BatchOutput(path)
        output.append([lines[0]])
    assert path.read_bytes() == lines[1] + lines[3] + lines[0]
    assert path.stat().st_mode & 0o777 == 0o640
    assert {each.name for each in tmp_path.iterdir()} == {"out", "link"}


def test_without_errors_the_file_stays(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_bytes(result("a", Answer(200, b"{}")))
    before = path.stat().st_ino
    with BatchOutput(path) as output:
        output.drop_errors()
        assert output.finished == {"a": False}
    assert path.stat().st_ino == before


@pytest.mark.parametrize(
    "text",
    [
        b"my notes",
        b"my notes\n",
        b"{}\n",
        jsonl(chat_line("a")),
        b'{"custom_id": "a", "response": {}, "error": null}\n',
        result("a", Answer(200, b"{}")) * 2,
        result("a", Answer(200, b"{}")) + b"rest",
        result("a", Answer(200, b"{}"))[:-1] + b"x\n",
    ],
)
def test_a_file_of_something_else_is_refused_and_stays(tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "out"
    path.write_bytes(text)
    with pytest.raises(UsageError):
        BatchOutput(path)
    assert path.read_bytes() == text


def test_two_runs_do_not_write_one_file(tmp_path: Path) -> None:
    path = tmp_path / "out"
    with BatchOutput(path), pytest.raises(InUseError):
        BatchOutput(path)
    with BatchOutput(path):
        pass


def test_a_device_is_no_file_to_go_on_with() -> None:
    with BatchOutput(Path(os.devnull)) as output:
        output.append(_results(IDS))
        assert output.finished == {}


def test_lines_are_read_again_without_the_finished(tmp_path: Path) -> None:
    path = tmp_path / "in"
    path.write_bytes(b"\xef\xbb\xbf" + jsonl(*map(chat_line, "abc")).replace(b"\n", b"\r\n\n") + b"  ")
    with BatchInput(path) as given:
        assert given.ids == {"a": 1, "b": 3, "c": 5}
        assert [line.custom_id for line in given.lines({"b"})] == ["a", "c"]
        assert [line.custom_id for line in given.lines()] == ["a", "b", "c"]
        assert given.is_file(path)
        assert not given.is_file(tmp_path / "none")


def test_stdin_is_read_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(jsonl(chat_line("a")))))
    with BatchInput(Path("-")) as given:
        assert [line.custom_id for line in given.lines()] == ["a"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"", "no lines"),
        (b"\n \n", "no lines"),
        (jsonl(chat_line("a")) + b"{\n", "line 2: the line is not valid JSON"),
        (jsonl(*map(chat_line, "abca")), "line 4: the custom_id 'a' is that of line 1"),
        (jsonl({**chat_line("a"), "url": "/v1/models"}), "line 1: the url /v1/models is not"),
    ],
)
def test_a_wrong_file_is_refused_before_anything_runs(tmp_path: Path, text: bytes, said: str) -> None:
    path = tmp_path / "in"
    path.write_bytes(text)
    with pytest.raises(UsageError, match=said):
        BatchInput(path)


def test_missing_files_and_folders(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="cannot be read"):
        BatchInput(tmp_path / "none")
    for path in (tmp_path, tmp_path / "none" / "out"):
        with pytest.raises(AiciError):
            BatchOutput(path)
