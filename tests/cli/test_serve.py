"""`aici serve` refuses wrong options before anything is loaded."""

from pathlib import Path

import pytest

from tests.support.cli import aici


@pytest.mark.parametrize(
    ("name", "said"), [("regex.wasm", "a shipped controller has this name"), ("no tag.wasm", "cannot be a tag")]
)
def test_names_in_the_folder_of_controllers(tmp_path: Path, name: str, said: str) -> None:
    (tmp_path / name).write_bytes(b"\0asm")
    done = aici("serve", "--controllers", str(tmp_path))
    assert done.returncode == 2
    assert said in done.stderr
