"""The page *Nodes*: running requests and their end, an engine that is killed and comes back."""

import os
import re
import signal
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import httpx2 as httpx
import pytest
from playwright.sync_api import Locator, Page, expect

from tests.engine.server.gateway.test_api_keys import key_file
from tests.support.console import OpenPage, screenshot, serious_findings, sign_in
from tests.support.processes import command, descendants
from tests.support.server import Server, serving

pytestmark = pytest.mark.e2e
expect.set_options(timeout=30_000)

KEYS = """
[keys.root]
key = "sk-root"
admin = true

[keys.ann]
key = "sk-ann"

[keys.bob]
key = "sk-bob"
"""
LONG = {"prompt": "Once upon a time", "max_tokens": 2000, "ignore_eos": True, "temperature": 0}


@pytest.fixture(scope="module")
def with_keys(program: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    keys = key_file(tmp_path_factory.mktemp("keys"), KEYS)
    with serving("--api-key-file", str(keys), "--replicas", "2") as server:
        yield server


@pytest.fixture
def asking(with_keys: Server) -> Iterator["Future[httpx.Response]"]:
    """A long answer to the key ann."""
    with httpx.Client(base_url=with_keys.url, timeout=120) as http, ThreadPoolExecutor(1) as pool:
        model = http.get("/v1/models", headers={"api-key": "sk-ann"}).json()["data"][0]["id"]
        body = LONG | {"model": model}
        yield pool.submit(http.post, "/v1/completions", json=body, headers={"api-key": "sk-ann"})


def nodes(open_page: OpenPage, server: Server, key: str) -> Page:
    page = open_page(f"{server.url}/console/nodes", allowed="401|409|ERR_CONNECTION_REFUSED")
    sign_in(page, key)
    expect(page.get_by_text("Connected")).to_be_visible()
    return page


def engines(page: Page) -> Locator:
    """The rows of the engine processes."""
    return page.get_by_role("region", name="Engine processes").get_by_role("row").filter(has=page.get_by_role("cell"))


def engine_pids(server: Server) -> set[int]:
    return {pid for pid in descendants(server.process.pid) if command(pid) == "aici-engine"}


def test_a_request_is_stopped_and_its_client_gets_the_end(
    with_keys: Server, open_page: OpenPage, asking: "Future[httpx.Response]"
) -> None:
    page = nodes(open_page, with_keys, "sk-root")
    row = page.get_by_role("region", name="Requests").get_by_role("row").filter(has_text="ann")
    expect(row).to_contain_text("running")
    busy = engines(page).get_by_role("cell", name=re.compile("^1 of"))
    expect(busy).to_have_count(1)
    expect(page.get_by_role("meter")).to_have_count(2)
    screenshot(page, "nodes-running")
    assert serious_findings(page) == []
    stop = row.get_by_role("button")
    stop.focus()
    page.keyboard.press("Enter")
    expect(page.get_by_text("Nothing runs or waits.")).to_be_visible()
    answer = asking.result(timeout=30)
    assert (answer.status_code, answer.json()["error"]["code"]) == (410, "stopped")
    assert "by an administrator" in answer.json()["error"]["message"]
    expect(busy).to_have_count(0)


def test_a_key_sees_its_own_requests_alone(
    with_keys: Server, open_page: OpenPage, asking: "Future[httpx.Response]"
) -> None:
    own, other = nodes(open_page, with_keys, "sk-ann"), nodes(open_page, with_keys, "sk-bob")
    stop = own.get_by_role("region", name="Requests").get_by_role("button")
    expect(stop).to_have_count(1)
    expect(other.get_by_text("Nothing runs or waits.")).to_be_visible()
    stop.click()
    assert asking.result(timeout=30).json()["error"]["message"].startswith("the request was stopped (")


def test_the_page_follows_an_engine_that_is_killed_and_comes_back(with_keys: Server, open_page: OpenPage) -> None:
    page = nodes(open_page, with_keys, "sk-bob")
    expect(engines(page).filter(has_text="up")).to_have_count(2)
    before = engine_pids(with_keys)
    killed = min(before)
    os.kill(killed, signal.SIGKILL)
    expect(engines(page).filter(has_text="restarting")).to_have_count(1)
    screenshot(page, "nodes-restarting")
    expect(engines(page).filter(has_text="up")).to_have_count(2)
    restarts = engines(page).get_by_role("cell").filter(has_text=re.compile("^1$"))
    expect(restarts).to_have_count(1)
    expect(page.get_by_text(re.compile("Engine . of .*: up"))).to_have_count(1)
    assert killed not in engine_pids(with_keys)


def test_an_administrator_drains_a_replica_and_lets_it_rejoin(with_keys: Server, open_page: OpenPage) -> None:
    other = nodes(open_page, with_keys, "sk-bob")
    assert other.get_by_role("button", name="Drain").count() == 0
    page = nodes(open_page, with_keys, "sk-root")
    page.get_by_role("button", name="Drain engine 1").click()
    expect(engines(page).filter(has_text="drained")).to_have_count(1)
    screenshot(page, "nodes-drained")
    assert serious_findings(page) == []
    page.get_by_role("button", name="Drain engine 2").click()
    expect(page.get_by_role("alert")).to_contain_text("no other replica is up")
    page.get_by_role("button", name="Let engine 1 rejoin").click()
    expect(engines(page).filter(has_text="up")).to_have_count(2)


def test_the_page_tries_again_after_a_lost_connection(with_keys: Server, open_page: OpenPage) -> None:
    page = open_page(f"{with_keys.url}/console/controllers", allowed="401|ERR_FAILED")
    sign_in(page, "sk-bob")
    page.route("**/stats/events", lambda route: route.abort())
    page.get_by_role("link", name="Nodes").click()
    expect(page.get_by_text("The server cannot be reached.")).to_be_visible()
    page.unroute("**/stats/events")
    expect(page.get_by_text("Connected")).to_be_visible()


def test_a_key_is_revoked_and_the_server_drained(program: str, tmp_path: Path, open_page: OpenPage) -> None:
    keys = key_file(tmp_path, KEYS)
    with serving("--api-key-file", str(keys)) as server:
        revoked = nodes(open_page, server, "sk-ann")
        keys.write_text(KEYS.replace("sk-ann", "sk-new"))
        server.process.send_signal(signal.SIGHUP)
        expect(revoked.get_by_label("API key")).to_be_visible()
        other = nodes(open_page, server, "sk-bob")
        assert other.get_by_role("button", name="Drain the server").count() == 0
        page = nodes(open_page, server, "sk-root")
        page.get_by_role("button", name="Drain the server").click()
        screenshot(page, "nodes-drain-server")
        assert serious_findings(page) == []
        page.get_by_role("button", name="Keep it running").click()
        page.get_by_role("button", name="Drain the server").click()
        page.get_by_role("button", name="Drain and stop").click()
        expect(other.get_by_text(re.compile("The server is stopping|No connection to the server"))).to_be_visible()
        assert server.process.wait(30) == 0
