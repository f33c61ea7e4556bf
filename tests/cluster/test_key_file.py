"""The key file of a stage or a node: made once, kept, and for its owner alone."""

import concurrent.futures
from pathlib import Path

import pytest

from aici_base.errors import UnavailableError, UsageError
from aici_engine.cluster.key_file import read_or_create_keys


def test_keys_are_made_once(tmp_path: Path) -> None:
    path = tmp_path / "aici" / "node-a"
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        found = set(pool.map(lambda _: read_or_create_keys(path), range(32)))
    assert found == {read_or_create_keys(path)}
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_file_that_others_may_read_or_that_is_no_key_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    read_or_create_keys(path)
    path.chmod(0o640)
    with pytest.raises(UsageError, match="others may read the key file"):
        read_or_create_keys(path)
    path.chmod(0o600)
    path.write_text("ab" * 32)
    with pytest.raises(UsageError, match="is not a key file") as error:
        read_or_create_keys(path)
    assert "remove the file" in error.value.hint
    with pytest.raises(UnavailableError, match="cannot be written"):
        read_or_create_keys(Path("/proc/aici-keys"))
