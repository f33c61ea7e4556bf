"""The threat model and the promises of security name tests for their claims: each named test exists."""

import re

import pytest

from tests.docs.pages import ROOT

_PAGES = ("SECURITY.md", "docs/explanations/threat-model.md")
_NAMED = re.compile(r"`(tests/[\w/]+\.py)`(?: `(\w+)`)?")


@pytest.mark.parametrize("page", _PAGES)
def test_named_tests_exist(page: str) -> None:
    for file, name in _NAMED.findall((ROOT / page).read_text()):
        assert (ROOT / file).is_file(), file
        assert not name or f"def {name}(" in (ROOT / file).read_text(), f"{file}::{name}"


def test_every_wall_names_a_test() -> None:
    """The tables with the columns attack, wall and test have a test in each row."""
    tables = (ROOT / _PAGES[1]).read_text().split("| attack | wall | test |\n|---|---|---|\n")[1:]
    rows = [row for table in tables for row in table.split("\n\n")[0].splitlines()]
    assert len(rows) > 25
    assert [row for row in rows if not _NAMED.search(row)] == []
