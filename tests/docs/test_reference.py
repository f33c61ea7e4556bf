"""The reference pages agree with the source: `make generated` writes the pages again."""

import pytest

from docs.generators import PAGES
from tests.docs.pages import ROOT


@pytest.mark.parametrize("name", PAGES)
def test_page_is_what_the_source_says(name: str) -> None:
    assert (ROOT / "docs" / "reference" / name).read_text() == PAGES[name](), "run: make generated"
