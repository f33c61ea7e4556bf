"""What is said of an engine in this process does not go to a server."""

import pytest

from aici_base.errors import UsageError
from aici_cli.run import Here

NOTHING = Here(max_forks=None, dtype=None, device=None, threads=None)


@pytest.mark.parametrize(
    ("here", "option"),
    [
        (Here(max_forks=20, dtype=None, device=None, threads=None), "--max-forks"),
        (Here(max_forks=None, dtype="int4", device=None, threads=None), "--dtype"),
        (Here(max_forks=None, dtype=None, device="cpu", threads=None), "--device"),
        (Here(max_forks=None, dtype=None, device=None, threads=1), "--threads"),
    ],
)
def test_a_server_has_its_own(here: Here, option: str) -> None:
    NOTHING.check_unused()
    with pytest.raises(UsageError, match=f"^{option} is not for --server"):
        here.check_unused()
