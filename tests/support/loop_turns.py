"""A server over a fake engine, in a process of its own, that tells how long its event loop was held.

The measure is processor time of the whole process between two moments at which the loop was free: a thread that holds
the interpreter's lock holds the loop too, and a busy machine lengthens nothing.
"""

import asyncio
import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.request import urlopen

from aici_engine.server.api.app import create_app
from tests.support.fake_engine import FakeEngine
from tests.support.fake_service import service_over
from tests.support.http import listening

_TICK_S = 0.001


@dataclass(frozen=True, slots=True)
class WatchedServer:
    """`url` has no slash at the end."""

    url: str

    def longest_ms(self) -> float:
        """Return the longest time that the loop was held since the last call."""
        with urlopen(f"{self.url}/longest-turn", timeout=60) as answer:
            return float(answer.read())


@contextlib.contextmanager
def watched_server() -> Iterator[WatchedServer]:
    """Start a server; the process has ended when the context ends."""
    command = [sys.executable, "-m", __spec__.name]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield WatchedServer(f"http://127.0.0.1:{int(process.stdout.readline())}")
        finally:
            process.stdin.close()  # the server ends with its input


async def _main() -> None:
    app = create_app(service_over(FakeEngine()))
    longest = 0.0

    @app.get("/longest-turn")
    async def longest_turn() -> float:
        nonlocal longest
        said, longest = longest, 0.0
        return 1000 * said

    @app.get("/hold")
    async def hold() -> None:
        json.loads(f"[{'1,' * 4_000_000}1]")

    async def watch() -> None:
        nonlocal longest
        before = time.process_time()
        while True:
            await asyncio.sleep(_TICK_S)
            now = time.process_time()
            longest = max(longest, now - before)
            before = now

    async with listening(app) as port:
        watching = asyncio.create_task(watch())
        print(port, flush=True)
        await asyncio.to_thread(sys.stdin.read)
        watching.cancel()


if __name__ == "__main__":
    asyncio.run(_main())
