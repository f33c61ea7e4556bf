"""Flags of an engine in this process do not go with --server."""

from pathlib import Path

import pytest

from aici_base.errors import UsageError
from aici_cli.model_flags import ModelFlags
from tests.support.cli import aici


@pytest.mark.parametrize(
    ("flags", "option"),
    [
        (ModelFlags(server="http://h", max_forks=20), "--max-forks"),
        (ModelFlags(server="http://h", dtype="int4"), "--dtype"),
        (ModelFlags(server="http://h", kv_cache_dtype="int8"), "--kv-cache-dtype"),
        (ModelFlags(server="http://h", device="cpu"), "--device"),
        (ModelFlags(server="http://h", draft_model="default"), "--draft-model"),
        (ModelFlags(server="http://h", threads=1), "--threads"),
        (ModelFlags(server="http://h", adapter=Path("a")), "--adapter"),
    ],
)
def test_engine_flags_are_refused_with_a_server(flags: ModelFlags, option: str) -> None:
    ModelFlags(server="http://h").check()
    with pytest.raises(UsageError, match=f"^{option} is not for --server"):
        flags.check()


def test_a_folder_without_an_adapter_is_refused_before_anything_is_loaded(tmp_path: Path) -> None:
    done = aici("run", "--adapter", str(tmp_path), "Hello")
    assert done.returncode == 2, done.stderr
    assert "adapter_config.json" in done.stderr


@pytest.mark.parametrize("option", ["--dtype", "--kv-cache-dtype", "--speculate", "--draft-dtype"])
def test_an_unknown_value_is_refused_in_our_words(option: str) -> None:
    done = aici("run", option, "foo", "Hello")
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: Invalid value for '{option}': 'foo' is not one of 'auto', ")


def test_a_draft_model_that_is_nowhere_is_refused() -> None:
    done = aici("run", "--draft-model", "nowhere", "Hello")
    assert done.returncode == 2
    assert "nowhere" in done.stderr
