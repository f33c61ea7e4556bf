"""The page *Metrics*: charts of the last hour, kept up to date, and the same as a table."""

import re

import httpx2 as httpx
import pytest
from playwright.sync_api import expect

from tests.support.console import OpenPage, screenshot, serious_findings
from tests.support.server import Server

pytestmark = pytest.mark.e2e
expect.set_options(timeout=30_000)


def test_charts_follow_the_server_and_a_table_says_the_same(server: Server, open_page: OpenPage) -> None:
    page = open_page(f"{server.url}/console/metrics")
    expect(page.get_by_role("img", name="Tokens per second")).to_be_visible()
    with httpx.Client(base_url=server.url, timeout=120) as http:
        model = http.get("/v1/models").json()["data"][0]["id"]
        body = {"model": model, "prompt": "Once upon a time", "max_tokens": 40, "ignore_eos": True}
        assert http.post("/v1/completions", json=body).status_code == 200
        # Without a reload: the page reads the history again by itself.
        first = page.get_by_role("img", name="Time to the first token")
        expect(first).not_to_have_accessible_name(
            "Time to the first token. p50: – at last, – at most. p99: – at last, – at most"
        )
        assert page.locator("canvas").count() == 5
        screenshot(page, "metrics-charts")
        assert serious_findings(page) == []
        page.get_by_label("As a table").check()
        # Rows of intervals without a request have a dash: also the newest row, when a new interval has begun.
        times = page.locator("tbody tr > :nth-child(3)")
        expect(times.filter(has_text=re.compile(r"\d\s*m?s")).first).to_be_visible()
        screenshot(page, "metrics-table")
        assert serious_findings(page) == []
        history = http.get("/stats/history").json()["intervals"]
    # The page reads the history at intervals, so the last rows may come later.
    page.wait_for_function("count => document.querySelectorAll('tr').length >= count", arg=len(history))
