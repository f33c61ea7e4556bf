"""The playground: its editor, runs with forks, what the model wanted, recordings, and links."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest
from playwright.sync_api import Page, expect

from tests.console.fork_recording import many_forks
from tests.support.console import OpenPage, screenshot, serious_findings
from tests.support.server import Server

pytestmark = pytest.mark.e2e

FORKS = """\
await $`A list: `;
const n = await fork(3);
setVar("branch" + n, "is " + n);
await $`${n}.`;
await gen({ regex: / [a-z]+/, maxTokens: 3 });
"""


_PASTE = """(editor, text) => {
  const clipboardData = new DataTransfer();
  clipboardData.setData("text/plain", text);
  editor.dispatchEvent(new ClipboardEvent("paste", { clipboardData, bubbles: true, cancelable: true }));
}"""


@pytest.fixture(autouse=True)
def _patient() -> None:
    expect.set_options(timeout=30_000)


def playground(server: Server, open_page: OpenPage, fragment: str = "") -> Page:
    page = open_page(f"{server.url}/console/playground{fragment}", viewport={"width": 1400, "height": 900})
    page.get_by_role("textbox", name="Source").wait_for()
    return page


def write(page: Page, source: str, language: str = "JavaScript") -> None:
    """Replace the source: select all, delete, and paste. The browser's own replacing would write style attributes."""
    page.get_by_label("Language").select_option(label=language)
    editor = page.get_by_role("textbox", name="Source")
    editor.press("Control+a")
    editor.press("Delete")
    editor.evaluate(_PASTE, source)


def run(page: Page) -> None:
    page.get_by_role("button", name="Run", exact=True).click()
    expect(page.get_by_role("button", name="Stop")).to_be_disabled()


def chips(page: Page, branch: int) -> list[str]:
    found = page.get_by_role("list", name=f"Tokens of branch {branch}").get_by_role("button")
    return [each or "" for each in (found.nth(at).get_attribute("aria-label") for at in range(found.count()))]


def test_forks_are_a_tree_and_stand_side_by_side(server: Server, open_page: OpenPage) -> None:
    page = playground(server, open_page)
    write(page, FORKS)
    page.keyboard.press("Control+Enter")
    tree = page.get_by_role("navigation", name="Branches")
    expect(tree.get_by_role("listitem")).to_have_count(3)
    expect(page.get_by_role("article")).to_have_count(3)
    expect(page.get_by_role("status").filter(has_text="sampled")).to_have_text(re.compile(r"\d s$"))
    root, child = chips(page, 0), chips(page, 2)
    assert "fork, ⇉ 2" in root
    assert any(label.startswith("forced, ") for label in child)
    assert any(label.startswith("sampled, ") for label in child)
    assert child[-1].startswith("end, ")
    second = page.get_by_role("article", name="Branch 2")
    expect(second).to_contain_text("A list:")  # what the branch inherited
    expect(second.locator(".note")).to_contain_text(['branch2 = "is 2"'])
    page.get_by_role("checkbox", name="Show branch 1").uncheck()
    expect(page.get_by_role("article")).to_have_count(2)
    tree.get_by_role("button").nth(2).click()
    screenshot(page, "playground-forks")
    assert serious_findings(page) == []


def test_the_bars_are_the_numbers_of_the_api(server: Server, open_page: OpenPage) -> None:
    page = playground(server, open_page)
    write(page, "[A-Z]+", "Regular expression")
    page.get_by_label("Prompt").fill("The capital of France is")
    page.get_by_label("Max tokens").fill("4")
    run(page)
    told = explained(server, "regex", "[A-Z]+", prompt="The capital of France is", max_tokens=4)
    first = page.get_by_role("list", name="Tokens of branch 0").get_by_role("button").first
    first.click()
    page.keyboard.press("ArrowRight")
    explanation = told[1]["explanation"]
    detail = page.get_by_role("region", name="Step", exact=True)
    expect(detail).to_contain_text(f"{explanation['num_allowed']:,}")
    assert any(not each["allowed"] for each in explanation["likeliest"])
    factor = explanation["masked_probability"] / explanation["probability"]
    for each in explanation["likeliest"]:
        row = detail.locator(f"tr[data-token='{each['id']}']")
        after = percent(each["probability"] * factor) if each["allowed"] else "refused"
        expect(row.locator("td")).to_contain_text([percent(each["probability"]), after])
        width = row.locator(".bar").first.evaluate("bar => parseFloat(bar.style.width)")
        assert width == pytest.approx(100 * each["probability"], rel=1e-3)
    chosen = detail.locator(f"tr[data-token='{told[1]['id']}'] td")
    expect(chosen.nth(1)).to_contain_text(percent(explanation["masked_probability"]))
    screenshot(page, "playground-bars")
    assert serious_findings(page) == []


def explained(server: Server, controller: str, argument: str, **more: object) -> list[dict[str, Any]]:
    """Return the tokens of a run, asked for without a browser."""
    body = {"controller": controller, "controller_arg": argument, "temperature": 0, "seed": 1, "explain": 8, **more}
    answer = httpx.post(f"{server.url}/v1/run", json=body, timeout=60)
    events = [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: {")]
    return [token for event in events for fork in event.get("forks", ()) for token in fork["tokens"]]


def percent(probability: float) -> str:
    return "<0.01 %" if 0 < probability < 0.0001 else f"{100 * probability:.2f} %"


@pytest.mark.parametrize(
    ("language", "source", "line", "message"),
    [
        ("JavaScript", "await $`a`;\nlet x = ;\n", 2, "2:9"),
        ("Python", "import aici\n\ndef f(:\n  pass\n", 3, "3:7"),
        ("Grammar", "%start s\n%%\ns : nope ;\n", 3, "nope is neither a rule"),
    ],
)
def test_an_error_is_marked_at_its_line(
    server: Server, open_page: OpenPage, language: str, source: str, line: int, message: str
) -> None:
    page = playground(server, open_page)
    write(page, source, language)
    expect(page.get_by_role("region", name="Problems")).to_contain_text(message)
    mark = page.locator(".cm-lintRange-error, .cm-lintPoint-error")
    expect(mark).to_have_count(1)
    expect(page.locator(".cm-line").nth(line - 1).locator(mark)).to_have_count(1)
    if language == "JavaScript":
        screenshot(page, "playground-error")


def test_a_failed_run_is_marked_where_the_script_failed(server: Server, open_page: OpenPage) -> None:
    page = open_page(f"{server.url}/console/playground", allowed="400")
    write(page, "import aici\n1 / 0\n", "Python")
    page.get_by_role("button", name="Run", exact=True).click()
    expect(page.get_by_role("region", name="Problems")).to_contain_text("2:1")
    expect(page.get_by_role("region", name="Problems")).to_contain_text("divide by zero")
    page.get_by_role("textbox", name="Source").press("End")
    page.keyboard.type("#")
    expect(page.get_by_role("region", name="Problems")).not_to_contain_text("divide by zero")


def test_completion_knows_the_names_of_the_types(server: Server, open_page: OpenPage) -> None:
    page = playground(server, open_page)
    write(page, "")
    page.get_by_role("textbox", name="Source").press_sequentially("genTok")
    expect(page.get_by_role("option", name="genTokens")).to_be_visible()


def test_a_link_holds_the_whole_playground(server: Server, open_page: OpenPage) -> None:
    page = playground(server, open_page)
    write(page, "# é\nimport aici\nawait aici.FixedTokens('here')\n", "Python")
    page.get_by_label("Prompt").fill("Say")
    page.get_by_label("Seed").fill("42")
    page.get_by_label("Seed").blur()
    page.get_by_role("button", name="Copy link").click()
    page.wait_for_function("() => location.hash.length > 9")
    fragment = page.evaluate("() => location.hash")
    other = playground(server, open_page, fragment)
    expect(other.get_by_label("Language")).to_have_value("python")
    expect(other.get_by_label("Prompt")).to_have_value("Say")
    expect(other.get_by_label("Seed")).to_have_value("42")
    expect(other.get_by_role("textbox", name="Source")).to_contain_text("aici.FixedTokens('here')")
    expect(other.get_by_role("article")).to_have_count(0)  # a link of a stranger runs nothing
    other.get_by_label("Prompt").fill("Say it")
    other.wait_for_function("() => location.hash === ''")  # the link no longer holds what is shown
    other.reload()
    expect(other.get_by_label("Prompt")).to_have_value("Say it")
    wrong = playground(server, open_page, "#not-a-link")
    expect(wrong.get_by_role("alert")).to_contain_text("does not hold a playground")


def test_examples_open_and_own_work_is_saved(server: Server, open_page: OpenPage) -> None:
    page = playground(server, open_page)
    menu = page.get_by_label("Open", exact=True)
    assert menu.locator("optgroup[label='Examples'] option").count() == 14
    menu.select_option(label="haiku.json")
    expect(page.get_by_label("Language")).to_have_value("steps")
    page.get_by_label("Name").fill("mine")
    page.get_by_role("button", name="Save").click()
    write(page, "other")
    page.reload()
    page.get_by_label("Open", exact=True).select_option(label="mine")
    expect(page.get_by_role("textbox", name="Source")).to_contain_text('"steps"')


def test_a_recording_is_stepped_through_without_a_model(server: Server, open_page: OpenPage, tmp_path: Path) -> None:
    trace = recorded(tmp_path)
    page = playground(server, open_page)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.get_by_label("Open a trace").set_input_files(trace)
    expect(page.get_by_role("article")).to_have_count(2)
    labels = chips(page, 1)
    assert labels[-1].startswith("end, ")
    assert any(label.startswith("sampled, removed later, ") for label in labels)
    assert "forced, done" in labels  # the recording has the texts of its tokens
    assert any(label.startswith("taken back, ↩ ") for label in labels)
    expect(page.get_by_role("article", name="Branch 0").locator(".note").first).to_contain_text('a = "1"')
    detail = page.get_by_role("region", name="Step", exact=True)
    page.get_by_role("button", name="Next token").click()
    before = detail.inner_text()
    page.get_by_role("button", name="Next token").click()
    assert detail.inner_text() != before
    screenshot(page, "playground-trace")
    assert not [url for url in asked if "/v1/run" in url]


RECORDED = """\
await $`Hi `;
setVar("a", "1");
const n = await fork(2);
const label = new Label();
await gen({ regex: /[a-z ]+/, maxTokens: 3 });
await label.fixedAfter("done");
"""


def recorded(folder: Path) -> Path:
    """Record a run of the command line."""
    (folder / "script.js").write_text(RECORDED)
    trace = folder / "trace.jsonl"
    environment = {**os.environ, "AICI_TRACE": str(trace), "AICI_API_BASE": ""}
    command = [sys.executable, "-m", "aici_cli", "run", str(folder / "script.js")]
    subprocess.run(command, env=environment, check=True, capture_output=True, timeout=120)
    return trace


def test_64_forks_of_a_recording(server: Server, open_page: OpenPage, tmp_path: Path) -> None:
    page = playground(server, open_page)
    page.get_by_label("Open a trace").set_input_files(many_forks(tmp_path, forks=64, tokens=150))
    expect(page.get_by_role("article")).to_have_count(64)
    columns = page.locator(".columns")
    assert columns.evaluate("columns => columns.scrollWidth > 5 * columns.clientWidth")
    tokens = page.get_by_role("list", name="Tokens of branch 63").get_by_role("button")
    expect(page.get_by_role("article", name="Branch 63").locator("p.far")).not_to_be_empty()  # far away: plain text
    expect(tokens).to_have_count(0)
    page.get_by_role("navigation", name="Branches").get_by_role("button").last.click()
    expect(page.get_by_role("article", name="Branch 63")).to_be_in_viewport()
    expect(tokens).to_have_count(150)
    assert page.evaluate(_LONGEST_FRAME_MS) < _HANGS_MS
    screenshot(page, "playground-64")


_HANGS_MS = 5_000
"""A generous bound: the machine of a test may be busy."""
_LONGEST_FRAME_MS = """async () => {
  const columns = document.querySelector(".columns");
  let longest = 0, before = await new Promise(requestAnimationFrame);
  for (let x = columns.scrollWidth; x >= 0; x -= 400) {
    columns.scrollLeft = x;
    const now = await new Promise(requestAnimationFrame);
    longest = Math.max(longest, now - before);
    before = now;
  }
  return longest;
}"""


def test_escape_stops_a_run(server: Server, open_page: OpenPage) -> None:
    page = playground(server, open_page)
    write(page, "while (true) await gen({ maxTokens: 5 });\n")
    page.get_by_label("Max tokens").fill("5000")
    page.get_by_label("Max tokens").blur()
    page.keyboard.press("Control+Enter")
    expect(page.get_by_role("list", name="Tokens of branch 0").get_by_role("button").nth(5)).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("button", name="Stop")).to_be_disabled()
