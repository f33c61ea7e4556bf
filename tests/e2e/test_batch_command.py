"""`aici batch` with the real model in its own engine."""

from pathlib import Path

import pytest

from tests.cli.kill_batch import kill_and_go_on

pytestmark = pytest.mark.e2e


def test_every_line_once_after_a_kill(tmp_path: Path) -> None:
    *_, end = kill_and_go_on(tmp_path, num_lines=60, num_kills=1)
    assert end == 60
