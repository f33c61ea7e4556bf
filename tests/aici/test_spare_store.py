"""The temporary folder in place of a store that cannot be written."""

from pathlib import Path

import pytest

from aici.spare_store import SpareStore, can_grow
from aici_base.errors import UnavailableError

ID = "ab" * 32


def test_a_folder_that_does_not_exist_yet_can_grow(tmp_path: Path) -> None:
    assert can_grow(tmp_path / "a" / "b")
    assert not can_grow(Path("/proc/a/b"))


@pytest.mark.parametrize("has_code", [True, False])
def test_what_the_store_has_is_copied_and_a_compilation_is_told(tmp_path: Path, has_code: bool) -> None:
    store = tmp_path / "store"
    store.mkdir()
    (store / f"{ID}.wasm").write_bytes(b"wasm")
    if has_code:
        (store / f"{ID}-key.cwasm").write_bytes(b"code")
    (store / "other.wasm").write_bytes(b"")
    said: list[str] = []
    spare = SpareStore(said.append, store)
    try:
        spare.provide(ID, "mine")
        assert {path.name for path in (spare.cache_dir / "modules").iterdir()} == {
            path.name for path in store.glob(f"{ID}*")
        }
        assert [line.endswith("mine is compiled in a temporary folder, each time") for line in said] == [True] * (
            not has_code
        )
    finally:
        spare.close()
    assert not spare.cache_dir.exists()


def test_nothing_can_be_written_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", "/proc/nowhere")
    with pytest.raises(UnavailableError, match="no temporary folder") as error:
        SpareStore(print, Path("/proc/aici"))
    assert "TMPDIR" in error.value.hint
