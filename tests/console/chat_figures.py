"""Figures of the chat page, for notes: `python -m tests.console.chat_figures` prints them as JSON.

`javascript_kb`: the scripts that the page loads, compressed. `first_paint_ms`: the median of several fresh browsers'
first contentful paints. `streaming` and `scrolling`: the longest frame, the longest task and the most
processor time of a task, in milliseconds, while ten thousand tokens arrive, and while the answer is scrolled to its
beginning. Times count on a quiet machine only; processor time does not depend on what else runs.
"""

import gzip
import json
import os
import shutil
import statistics
import sys
from typing import Any, Final

from playwright.sync_api import Browser, Response, sync_playwright

from tests.console.frame_watch import count_frames, watched
from tests.support.server import Server, serving

_PAINTS: Final = 7
_TOKENS: Final = 10_000
_TOKENS_A_SECOND: Final = 500
_TEXT: Final = """\
## Section

A paragraph with **strong**, *weak* and `code` words, [a link](https://example.com) and more words that fill the lines.

- one item of a list, with a few words
- another item, with **strong** words
  - an item inside of an item

1. a step
2. one more step

| name | value | meaning |
|------|------:|---------|
| a | 1 | the first |
| b | 22 | the second |

```python
def answer(question: str) -> int:
    return len(question)  # a comment
```

> A quotation of somebody who says a whole sentence.

"""
_STREAM: Final = """
([text, tokens, rate]) => {
  const fetched = window.fetch;
  window.fetch = async (path, init) => {
    if (!String(path).endsWith("/chat/completions")) return fetched(path, init);
    const encoder = new TextEncoder();
    const part = (delta, usage) => encoder.encode("data: " + JSON.stringify({
      choices: [{delta, finish_reason: usage < tokens ? null : "stop"}],
      usage: {prompt_tokens: 1, completion_tokens: usage},
    }) + "\\n\\n");
    const length = Math.ceil(text.length / tokens);
    let sent = 0;
    const begun = performance.now();
    const body = new ReadableStream({
      async pull(stream) {
        await new Promise((resolve) => setTimeout(resolve, 4));
        const due = Math.min(tokens, Math.ceil((performance.now() - begun) * rate / 1000));
        for (; sent < due; sent++) {
          stream.enqueue(part({content: text.slice(sent * length, (sent + 1) * length)}, sent + 1));
        }
        if (sent === tokens) stream.close();
      },
    });
    return new Response(body);
  };
}
"""
_SCROLL: Final = """
async () => {
  const log = document.querySelector("[role=region][aria-label=Messages]");
  while (log.scrollTop > 0) {
    log.scrollTop -= 200;
    await new Promise(requestAnimationFrame);
  }
}
"""


def _first_paint_ms(browser: Browser, server: Server) -> float:
    with browser.new_context() as context:
        page = context.new_page()
        page.goto(f"{server.url}/console/chat", wait_until="load")
        found: float = page.evaluate(
            """() => new Promise((resolve) => new PerformanceObserver((list) => {
              for (const each of list.getEntriesByName("first-contentful-paint")) resolve(each.startTime);
            }).observe({type: "paint", buffered: true}))"""
        )
        return found


def _javascript_kb(browser: Browser, server: Server) -> float:
    answers: list[Response] = []
    with browser.new_context() as context:
        page = context.new_page()
        page.on("response", lambda answer: answers.append(answer))  # Playwright marks the handler
        page.goto(f"{server.url}/console/chat", wait_until="networkidle")
        scripts = [answer.body() for answer in answers if answer.url.endswith(".js")]
    return sum(len(gzip.compress(script, mtime=0)) for script in scripts) / 1000


def _long_answer(browser: Browser, server: Server) -> dict[str, Any]:
    length = 4 * _TOKENS
    text = (_TEXT * (length // len(_TEXT) + 1))[:length]
    with browser.new_context() as context:
        page = context.new_page()
        page.goto(f"{server.url}/console/chat")
        page.evaluate(_STREAM, [text, _TOKENS, _TOKENS_A_SECOND])
        count_frames(page)
        page.get_by_label("Message", exact=True).fill("Go on.")
        with watched(browser, page) as streaming:
            page.keyboard.press("Enter")
            page.get_by_role("button", name="Regenerate").wait_for(timeout=10 * 1000 * _TOKENS / _TOKENS_A_SECOND)
        with watched(browser, page) as scrolling:
            page.evaluate(_SCROLL)
        return {"streaming": streaming, "scrolling": scrolling, "said": page.locator(".figures").inner_text()}


def main() -> None:
    program = os.environ.get("AICI_CHROMIUM") or shutil.which("chromium")
    with serving() as server, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, chromium_sandbox=os.geteuid() != 0)
        paints = [_first_paint_ms(browser, server) for _ in range(_PAINTS)]
        figures = {
            "javascript_kb": round(_javascript_kb(browser, server)),
            "first_paint_ms": round(statistics.median(paints)),
            "first_paints_ms": [round(each) for each in paints],
            **_long_answer(browser, server),
        }
        browser.close()
    sys.stdout.write(f"{json.dumps(figures, indent=2)}\n")


if __name__ == "__main__":
    main()
