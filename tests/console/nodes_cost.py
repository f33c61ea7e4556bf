"""What the page *Nodes* costs: decoding with the page open, with a listener without a browser, and with neither.

    python -m tests.console.nodes_cost            # a server of its own, the default model, 8 rounds

A round decodes the same tokens once in each situation, in turning order. The figures are medians over the rounds, and
the ratios are medians of the ratios inside of a round, so that a slow minute of the machine touches all situations.
"""

import argparse
import contextlib
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from urllib.request import Request, urlopen

from playwright.sync_api import sync_playwright

from tests.support.server import serving

_ARGUMENTS = ("--disable-background-networking", "--disable-component-update", "--no-first-run", "--no-sandbox")
_SETTLE_S = 1.0


def decode(url: str, model: str, num_tokens: int) -> float:
    """Return milliseconds a token."""
    body = {"model": model, "prompt": "Once", "max_tokens": num_tokens, "ignore_eos": True, "temperature": 0}
    headers = {"Content-Type": "application/json"}
    request = Request(f"{url}/v1/completions", json.dumps(body).encode(), headers)
    began = time.perf_counter()
    with urlopen(request, timeout=600) as answer:
        assert json.load(answer)["usage"]["completion_tokens"] == num_tokens
    return (time.perf_counter() - began) * 1000 / num_tokens


@contextlib.contextmanager
def listener(url: str) -> Iterator[None]:
    """A client that reads the pushed state and throws it away, in a process of its own."""
    command = ["curl", "-sN", "-H", "Accept: text/event-stream", f"{url}/stats/events"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as reading:
        try:
            yield
        finally:
            reading.terminate()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=300)
    parser.add_argument("--chromium", default="/usr/bin/chromium")
    given = parser.parse_args()
    with serving() as server, sync_playwright() as playwright:
        with urlopen(f"{server.url}/v1/models", timeout=30) as answer:
            model = json.load(answer)["data"][0]["id"]
        browser = playwright.chromium.launch(executable_path=given.chromium, args=list(_ARGUMENTS))

        @contextlib.contextmanager
        def page() -> Iterator[None]:
            shown = browser.new_page()
            shown.goto(f"{server.url}/console/nodes")
            shown.get_by_text("Connected").wait_for()
            try:
                yield
            finally:
                shown.close()

        situations: dict[str, Callable[[], contextlib.AbstractContextManager[None]]] = {
            "closed": contextlib.nullcontext,
            "listener": lambda: listener(server.url),
            "page": page,
        }
        decode(server.url, model, given.tokens)  # warm
        found: dict[str, list[float]] = {name: [] for name in situations}
        for number in range(given.rounds):
            names = list(situations)
            for name in names[number % 3 :] + names[: number % 3]:
                with situations[name]():
                    time.sleep(_SETTLE_S)
                    found[name].append(decode(server.url, model, given.tokens))
        browser.close()
    for name, times in found.items():
        ratios = [mine / other for mine, other in zip(times, found["closed"], strict=True)]
        sys.stdout.write(
            f"{name:9} {statistics.median(times):7.3f} ms a token, {statistics.median(ratios):6.3f} of closed"
            f" ({min(ratios):.3f} to {max(ratios):.3f})\n"
        )


if __name__ == "__main__":
    main()
