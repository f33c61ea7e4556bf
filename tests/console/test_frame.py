"""The frame of the console: its pages by path and by click, the key, and the headers that every file has."""

from pathlib import Path

import httpx2 as httpx
import pytest

from tests.engine.server.gateway.test_api_keys import ALICE, key_file
from tests.support.console import OpenPage, screenshot, serious_findings
from tests.support.server import Server, serving

pytestmark = pytest.mark.e2e

PAGES = ("Chat", "Playground", "Nodes", "Controllers", "Metrics")


def test_every_page_by_click_and_by_path(server: Server, open_page: OpenPage) -> None:
    page = open_page(server.url)
    for name in PAGES:
        page.get_by_role("link", name=name, exact=True).click()
        page.wait_for_url(f"{server.url}/console/{name.lower()}")
        assert page.get_by_role("heading", level=1).first.inner_text() == name
    page.go_back()
    page.wait_for_url(f"{server.url}/console/controllers")
    page.reload()
    assert page.get_by_role("heading", level=1).first.inner_text() == "Controllers"


@pytest.mark.parametrize("name", PAGES)
def test_nothing_serious_for_a_screen_reader(name: str, server: Server, open_page: OpenPage) -> None:
    page = open_page(f"{server.url}/console/{name.lower()}")
    page.get_by_role("heading", level=1).first.wait_for()
    page.wait_for_load_state("networkidle") if name == "Chat" else page.wait_for_timeout(500)
    screenshot(page, name.lower())
    assert serious_findings(page) == []


def test_a_server_with_keys_asks_for_one(browser: object, open_page: OpenPage, tmp_path: Path) -> None:
    keys = key_file(tmp_path)
    with serving("--api-key-file", str(keys)) as server:
        page = open_page(server.url, allowed="401")
        page.get_by_label("API key").fill("sk-wrong")
        page.get_by_role("button", name="Use this key").click()
        page.get_by_text("The server does not know this key.").wait_for()
        page.get_by_label("API key").fill(ALICE)
        with page.expect_navigation():  # the page begins anew with the key
            page.get_by_role("button", name="Use this key").click()
        page.get_by_role("button", name="Forget the key").wait_for()
        assert page.evaluate("() => [localStorage.length, sessionStorage.length]") == [0, 1]


def test_no_script_but_the_pages_own(server: Server) -> None:
    """The policy of the page allows no inline script, and other sites cannot frame the page."""
    with httpx.Client(base_url=server.url) as http:
        sent = http.get("/", headers={"accept": "text/html,*/*"}, follow_redirects=False)
        assert sent.headers["location"] == "/console/"
        answer = http.get("/console/chat")
        policy = dict(each.strip().split(" ", 1) for each in answer.headers["content-security-policy"].split(";"))
        assert policy["default-src"] == "'none'"
        assert policy["script-src"] == "'self'"
        assert policy["frame-ancestors"] == "'none'"
        assert http.get("/console/assets/none.js").status_code == 404


def test_a_server_without_the_console() -> None:
    with serving("--no-console") as server, httpx.Client(base_url=server.url) as http:
        assert "console" not in http.get("/", headers={"accept": "text/html"}).text
        assert http.get("/console/").status_code == 404
