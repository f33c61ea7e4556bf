"""Figures of 64 forks in the playground, for notes: `python -m tests.console.fork_figures` prints them as JSON.

`live`: a run on a real server, while its 64 forks and their tokens arrive. `recording`: a recording of 64 forks with
150 tokens each, while the page opens the file. Then, for each: `sideways` and `down`, while the branches and the tree
are scrolled; `keydown`, while arrow keys choose other tokens and branches. All in milliseconds: the longest frame, the
longest task, and the most processor time of a task. Times count on a quiet machine only; processor time
does not depend on what else runs.
"""

import json
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from playwright.sync_api import Browser, Page, sync_playwright

from tests.console.fork_recording import many_forks
from tests.console.frame_watch import count_frames, watched
from tests.support.server import Server, serving

_FORKS: Final = 64
_TOKENS: Final = 150
_WAIT_MS: Final = 300_000
_SCRIPT: Final = f"""\
await $`A list: `;
const n = await fork({_FORKS});
await $`${{n}}.`;
await gen({{ maxTokens: {_TOKENS} }});
"""
_SCROLL: Final = """
async ([selector, side, by]) => {
  const scrolled = document.querySelector(selector);
  const end = side === "scrollLeft" ? scrolled.scrollWidth : scrolled.scrollHeight;
  for (let at = 0; at < end; at += by) {
    scrolled[side] = at;
    await new Promise(requestAnimationFrame);
  }
}
"""
_KEYS: Final = ("ArrowRight", "ArrowRight", "ArrowLeft", "ArrowDown", "ArrowDown", "End", "Home", "ArrowUp")


def _paste(page: Page, source: str) -> None:
    """Replace the source in the editor."""
    editor = page.get_by_role("textbox", name="Source")
    editor.press("Control+a")
    editor.press("Delete")
    editor.evaluate(
        """(editor, text) => {
          const clipboardData = new DataTransfer();
          clipboardData.setData("text/plain", text);
          editor.dispatchEvent(new ClipboardEvent("paste", { clipboardData, bubbles: true, cancelable: true }));
        }""",
        source,
    )


def _steps(browser: Browser, page: Page) -> dict[str, Any]:
    """Scroll and press keys in a run that stands."""
    found: dict[str, Any] = {}
    for name, *scroll in (("sideways", ".columns", "scrollLeft", 120), ("down", ".tree", "scrollTop", 12)):
        with watched(browser, page) as found[name]:
            page.evaluate(_SCROLL, scroll)
    page.locator("[data-step]").first.click()
    with watched(browser, page) as found["keydown"]:
        for key in _KEYS:
            page.keyboard.press(key)
            page.evaluate("() => new Promise(requestAnimationFrame)")
    return found


def _opened(browser: Browser, server: Server) -> Page:
    page = browser.new_page(viewport={"width": 1400, "height": 900})
    page.goto(f"{server.url}/console/playground")
    page.get_by_role("textbox", name="Source").wait_for()
    count_frames(page)
    return page


def _live(browser: Browser, server: Server) -> dict[str, Any]:
    page = _opened(browser, server)
    _paste(page, _SCRIPT)
    page.get_by_label("Max tokens").fill(str(2 * _TOKENS))
    page.get_by_label("Max tokens").blur()
    with watched(browser, page) as arriving:
        page.get_by_role("button", name="Run", exact=True).click()
        page.wait_for_function(
            "() => document.querySelector('button:disabled[aria-keyshortcuts=Escape]')", timeout=_WAIT_MS
        )
    said = page.locator(".status").inner_text()
    return {"said": said, "branches": page.get_by_role("article").count(), "arriving": arriving} | _steps(browser, page)


def _recording(browser: Browser, server: Server) -> dict[str, Any]:
    page = _opened(browser, server)
    with tempfile.TemporaryDirectory() as folder:
        path = many_forks(Path(folder), forks=_FORKS, tokens=_TOKENS)
        with watched(browser, page) as opening:
            page.get_by_label("Open a trace").set_input_files(path)
            page.get_by_role("article").nth(_FORKS - 1).wait_for(state="attached")
            page.evaluate("() => new Promise(requestAnimationFrame)")
    return {"opening": opening} | _steps(browser, page)


def main() -> None:
    program = os.environ.get("AICI_CHROMIUM") or shutil.which("chromium")
    forks = str(_FORKS)
    with serving("--max-forks", forks, "--max-num-seqs", forks) as server, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, chromium_sandbox=os.geteuid() != 0)
        figures = {"live": _live(browser, server), "recording": _recording(browser, server)}
        browser.close()
    sys.stdout.write(f"{json.dumps(figures, indent=2)}\n")


if __name__ == "__main__":
    main()
