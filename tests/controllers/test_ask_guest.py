import os
import shutil
import time
from pathlib import Path

import pytest
import wasmtime

from aici_controllers import ask_guest
from aici_controllers.catalog import guest_path


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AICI_CACHE_DIR", str(tmp_path / "cache"))


def ask_like_a_new_process(folder: Path, monkeypatch: pytest.MonkeyPatch) -> object:
    """Ask a copy of the guest `regex` in `folder`: what a process remembers is of other files."""
    folder.mkdir()
    copy = Path(shutil.copy(guest_path("regex"), folder))
    monkeypatch.setattr(ask_guest, "guest_path", lambda _: copy)
    return ask_guest.ask("regex", {"pattern": "[a-z]+(", "search": False})


def fail(*_: object) -> None:
    raise AssertionError("the guest was compiled again")


def test_a_guest_is_compiled_once_for_all_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = ask_like_a_new_process(tmp_path / "first", monkeypatch)
    monkeypatch.setattr(wasmtime.Module, "__init__", fail)
    assert ask_like_a_new_process(tmp_path / "second", monkeypatch) == first


def test_a_damaged_file_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = ask_like_a_new_process(tmp_path / "first", monkeypatch)
    (kept,) = (tmp_path / "cache").rglob("*.cwasm")
    whole = kept.read_bytes()
    kept.unlink()  # the first process has mapped the old file
    kept.write_bytes(whole[:1000])
    assert ask_like_a_new_process(tmp_path / "second", monkeypatch) == first
    assert kept.read_bytes() == whole


def test_code_that_was_changed_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = ask_like_a_new_process(tmp_path / "first", monkeypatch)
    (kept,) = (tmp_path / "cache").rglob("*.cwasm")
    whole = kept.read_bytes()
    kept.unlink()  # the first process has mapped the old file
    kept.write_bytes(whole[: len(whole) // 2] + bytes(4096) + whole[len(whole) // 2 + 4096 :])
    assert ask_like_a_new_process(tmp_path / "second", monkeypatch) == first
    assert kept.read_bytes() == whole


def test_a_pipe_in_the_place_of_the_file_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = ask_like_a_new_process(tmp_path / "first", monkeypatch)
    (kept,) = (tmp_path / "cache").rglob("*.cwasm")
    kept.unlink()
    os.mkfifo(kept)
    assert ask_like_a_new_process(tmp_path / "second", monkeypatch) == first


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cache").write_text("a file in the place of the folder")
    assert ask_like_a_new_process(tmp_path / "first", monkeypatch)


def test_a_file_that_nobody_uses_is_removed_when_another_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "cache" / "checks"
    folder.mkdir(parents=True)
    for name, days in (("old", 40), ("used", 10)):
        (folder / f"{name}.cwasm").touch()
        then = time.time() - days * 86_400
        os.utime(folder / f"{name}.cwasm", (then, then))
    ask_like_a_new_process(tmp_path / "first", monkeypatch)
    (written,) = folder.glob("regex-*.cwasm")
    assert {*folder.iterdir()} == {written, folder / "used.cwasm"}
    os.utime(written, (0, 0))
    ask_like_a_new_process(tmp_path / "second", monkeypatch)
    assert written.stat().st_mtime > 0
