"""What tests of the console ask of a page."""

import os
from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import Page

OpenPage = Callable[..., Page]
"""`open_page(url, **settings)` of tests/console/conftest.py."""

_AXE = Path(__file__).parents[2] / "console/node_modules/axe-core/axe.min.js"


def serious_findings(page: Page) -> list[str]:
    """Return what axe-core finds serious or critical on the page as it stands."""
    page.evaluate(_AXE.read_text())
    found = page.evaluate("() => axe.run()")
    return [
        f"{each['impact']}: {each['help']}: {[node['html'] for node in each['nodes']]}"
        for each in found["violations"]
        if each["impact"] in ("serious", "critical")
    ]


def screenshot(page: Page, name: str) -> None:
    """Write a picture of the page, light and dark, to the folder that AICI_SCREENSHOTS names, if it does."""
    if folder := os.environ.get("AICI_SCREENSHOTS"):
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
            page.screenshot(path=Path(folder) / f"{name}-{scheme}.png")


def sign_in(page: Page, key: str) -> None:
    """Give the page the key that it asks for."""
    page.get_by_label("API key").fill(key)
    with page.expect_navigation():  # the page loads itself anew a moment after the button appears
        page.get_by_role("button", name="Use this key").click()
    page.get_by_role("button", name="Forget the key").wait_for()
