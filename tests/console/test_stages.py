"""The page *Nodes* over a pipeline: a real stage and the server as the driver, on one machine."""

import re
import signal
from collections.abc import Iterator
from pathlib import Path

import httpx2 as httpx
import pytest
from playwright.sync_api import expect

from tests.support.console import OpenPage, screenshot, serious_findings
from tests.support.server import Server, serving
from tests.support.stage_command import StageCommand

pytestmark = pytest.mark.e2e
expect.set_options(timeout=30_000)

_CUT = 15
_TIME = re.compile(r"^\d[\d.]* (ms|s)$")


@pytest.fixture
def stage(program: str, tmp_path: Path) -> Iterator[StageCommand]:
    stage = StageCommand(tmp_path, 0).start()
    yield stage
    assert stage.end(signal.SIGTERM) == 0


@pytest.fixture
def staged(stage: StageCommand) -> Iterator[Server]:
    flags = ["--stages", stage.address, "--cuts", str(_CUT), "--token-file", str(stage.folder / "token")]
    with serving(*flags, "--threads", "1") as server:
        yield server


def test_the_page_shows_the_stages_of_a_pipeline_and_follows_their_death(
    staged: Server, stage: StageCommand, open_page: OpenPage
) -> None:
    page = open_page(f"{staged.url}/console/nodes")
    rows = page.get_by_role("region", name="Layers of").get_by_role("row")
    expect(rows).to_have_count(4)  # the head, the stage, the driver, the wire
    expect(rows.nth(1)).to_contain_text(stage.address.partition("#")[0])
    expect(rows.nth(1)).to_contain_text("0 to 14")
    expect(rows.nth(2)).to_contain_text("Driver")
    expect(rows.nth(2)).to_contain_text("15 to 29")
    pipeline = page.get_by_text("Pipeline:")
    expect(pipeline).to_contain_text("ready")
    answer = httpx.post(f"{staged.url}/v1/completions", json={"prompt": "Once", "max_tokens": 8}, timeout=60)
    assert answer.status_code == 200
    for row, cell in ((1, 1), (1, 2), (2, 1), (3, 1)):  # forward pass, waiting; on the wire
        expect(rows.nth(row).get_by_role("cell").nth(cell)).to_have_text(_TIME)
    screenshot(page, "nodes-stages")
    assert serious_findings(page) == []
    stage.end(signal.SIGKILL)
    expect(pipeline).to_contain_text("interrupted")
    screenshot(page, "nodes-stage-lost")
    stage.start()
    expect(pipeline).to_contain_text("ready")
    expect(pipeline).to_contain_text("interrupted 1 times")
