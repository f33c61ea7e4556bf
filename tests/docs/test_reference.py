"""The reference pages are what the source says: `make generated` writes them again."""

import pytest

from docs.generators import PAGES
from tests.docs.pages import ROOT


@pytest.mark.parametrize("name", PAGES)
def test_page_is_what_the_source_says(name: str) -> None:
    assert (ROOT / "docs" / "reference" / name).read_text() == PAGES[name](), "run: make generated"
