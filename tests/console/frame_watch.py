"""How long the frames and tasks of a page take, for figures of the console."""

import contextlib
import json
from collections.abc import Iterator
from typing import Final

from playwright.sync_api import Browser, Page

_COUNT_FRAMES: Final = """
() => {
  const found = window.figures = {longest_frame_ms: 0};
  let last = performance.now();
  const frame = (now) => {
    found.longest_frame_ms = Math.max(found.longest_frame_ms, now - last);
    last = now;
    requestAnimationFrame(frame);
  };
  requestAnimationFrame(frame);
}
"""


def count_frames(page: Page) -> None:
    """Begin to measure the frames of a page: once for each page, before `watched`."""
    page.evaluate(_COUNT_FRAMES)


@contextlib.contextmanager
def watched(browser: Browser, page: Page) -> Iterator[dict[str, int]]:
    """Fill the result when the context ends: the longest frame, the longest task, the processor time of the longest
    task, in milliseconds."""
    found: dict[str, int] = {}
    page.evaluate("() => { window.figures.longest_frame_ms = 0 }")
    browser.start_tracing(page=page, categories=["toplevel", "__metadata"])
    yield found
    found["longest_frame_ms"] = round(page.evaluate("() => window.figures.longest_frame_ms"))
    events = json.loads(browser.stop_tracing())["traceEvents"]
    threads = {(each["pid"], each["tid"]) for each in events if each.get("args", {}).get("name") == "CrRendererMain"}
    tasks = [each for each in events if (each["pid"], each["tid"]) in threads and each["ph"] == "X"]
    found["longest_task_ms"] = round(max(each["dur"] for each in tasks) / 1000)
    found["most_cpu_of_a_task_ms"] = round(max(each.get("tdur", 0) for each in tasks) / 1000)
