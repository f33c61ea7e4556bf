"""Some hundred requests with random forks and kills. `tests.runtime.support.leak`, run by hand, makes thousands."""

from pathlib import Path

import pytest

from aici_runtime.client import Runtime
from tests.runtime.support import leak


@pytest.mark.parametrize(("futex", "pool"), [(False, False), (True, True)])
def test_nothing_leaks(byte_level: Path, tmp_path: Path, futex: bool, pool: bool) -> None:
    with Runtime(leak.config(byte_level, tmp_path, futex=futex, pool=pool)) as runtime:
        runtime.wait_ready()
        report, leaked = leak.run(runtime, tmp_path, num_requests=150, seed=int(futex))
    assert leaked == [], report
    assert sum(report["killed"].values()) > 0, report  # about fifteen, by chance
    assert report["outcomes"]["well"] > 100
