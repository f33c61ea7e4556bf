"""Flags of an engine in this process do not go with --server."""

import pytest

from aici_base.errors import UsageError
from aici_cli.run import EngineFlags


@pytest.mark.parametrize(
    ("flags", "option"),
    [
        (EngineFlags(max_forks=20), "--max-forks"),
        (EngineFlags(dtype="int4"), "--dtype"),
        (EngineFlags(device="cpu"), "--device"),
        (EngineFlags(threads=1), "--threads"),
    ],
)
def test_engine_flags_are_refused_with_a_server(flags: EngineFlags, option: str) -> None:
    EngineFlags().check_unused()
    with pytest.raises(UsageError, match=f"^{option} is not for --server"):
        flags.check_unused()
