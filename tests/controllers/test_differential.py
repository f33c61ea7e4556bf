"""A few seconds of the differential runs; `python -m tests.controllers.differential` runs them for hours."""

from collections import Counter
from random import Random

import pytest

from aici_controllers.catalog import guest_path
from tests.controllers.differential.kinds import KINDS
from tests.support.scale import scaled
from tests.support.tool_guest import ToolGuest

_NUM_CASES = {"whole": 50, "search": 150, "schemas": 150, "grammars": 20}


@pytest.mark.parametrize("name", KINDS)
def test_no_differences(name: str) -> None:
    guest, case = KINDS[name]
    tool, counts = ToolGuest(guest_path(guest)), Counter[str]()
    for seed in range(scaled(_NUM_CASES[name])):
        assert list(case(tool, Random(seed), counts)) == [], f"seed {seed}"
    assert counts.total() > scaled(_NUM_CASES[name])
