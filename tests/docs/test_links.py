"""Links between the files of the repository lead somewhere, anchors included; `make docs` checks the site's."""

import re
from pathlib import Path

import pytest

from tests.docs.pages import MARKDOWN, ROOT, Page

_LINK = re.compile(r"\]\(([^()\s]+)\)")


def anchors(path: Path) -> set[str]:
    """Return the anchors of a page's headings in the spelling of Markdown renderers."""
    text = re.sub(r"^```.*?^```", "", path.read_text(), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("path", MARKDOWN, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(path: Path) -> None:
    dead = []
    prose = re.sub(r"^( *)```.*?^\1```", "", Page(path).text, flags=re.MULTILINE | re.DOTALL)
    for target in _LINK.findall(re.sub(r"`[^`]*`", "", prose)):
        if "://" in target:
            continue
        file, _, anchor = target.partition("#")
        to = (path.parent / file).resolve() if file else path
        if not to.exists() or (anchor and to.suffix == ".md" and anchor not in anchors(to)):
            dead.append(target)
    assert not dead
