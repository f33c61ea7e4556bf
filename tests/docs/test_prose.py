"""The documentation is in plain English: few pronouns whose nouns a reader has to look for."""

import re

import pytest

from tests.docs.pages import MARKDOWN, PAGES, ROOT, Page

_PRONOUNS = frozenset(
    re.findall(
        r"\w+",
        """that what those who whom whose it its itself one ones these this they them their which whatever whoever
        whichever another others each both none some there he she his her""",
    )
)
_AT_MOST = 60
"""In 1,000 words: about the figure of well-kept projects (starlette 36, typer 50, wasmtime-py 66)."""

_OWN = [path for path in PAGES if "reference" not in path.parts] + [ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]


def pronouns(prose: str) -> tuple[int, int]:
    """How many pronouns, in how many words."""
    words = re.findall(r"[A-Za-z']+", prose.lower())
    return sum(word in _PRONOUNS for word in words), len(words)


@pytest.mark.parametrize("path", _OWN, ids=lambda path: str(path.relative_to(ROOT)))
def test_prose_is_plain(path) -> None:
    found, words = pronouns(Page(path).prose)
    assert found <= max(_AT_MOST * words / 1000, 2), f"{1000 * found / words:.0f} pronouns in 1,000 words"


def test_the_whole_is_plain() -> None:
    found, words = (sum(column) for column in zip(*(pronouns(Page(path).prose) for path in MARKDOWN), strict=True))
    assert found / words <= 0.06, f"{1000 * found / words:.0f} pronouns in 1,000 words"
