"""Flags of an engine in this process do not go with --server."""

import pytest

from aici_base.errors import UsageError
from aici_cli.model_flags import ModelFlags


@pytest.mark.parametrize(
    ("flags", "option"),
    [
        (ModelFlags(server="http://h", max_forks=20), "--max-forks"),
        (ModelFlags(server="http://h", dtype="int4"), "--dtype"),
        (ModelFlags(server="http://h", device="cpu"), "--device"),
        (ModelFlags(server="http://h", threads=1), "--threads"),
    ],
)
def test_engine_flags_are_refused_with_a_server(flags: ModelFlags, option: str) -> None:
    ModelFlags(server="http://h").check()
    with pytest.raises(UsageError, match=f"^{option} is not for --server"):
        flags.check()
