"""`aici serve`, run as a user runs the command: a process that listens on a free port."""

import contextlib
import json
import os
import re
import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.request import urlopen

from tests.support.cli import AICI

_STARTED = re.compile(r"serving .* at (https?://[^\s\"]+)")


@dataclass(frozen=True, slots=True)
class Server:
    """`url` has no slash at the end. `said`: the lines on stderr so far."""

    url: str
    process: subprocess.Popen[str]
    said: list[str] = field(default_factory=list)

    def stats(self) -> Mapping[str, Any]:
        with urlopen(f"{self.url}/stats", timeout=30) as answer:
            stats: Mapping[str, Any] = json.load(answer)
        return stats


@contextlib.contextmanager
def serving(*args: str, within: Sequence[str] = (), env: Mapping[str, str] | None = None) -> Iterator[Server]:
    """Run `aici serve --port 0 ARGS` and yield when the server is ready. The process has ended when the context
    ends.

    `within`: a command that executes the command behind it. `env`: more environment variables."""
    command = [*within, *AICI, "serve", "--port", "0", *args]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={**os.environ, **(env or {})}) as process:
        assert process.stderr is not None
        said: list[str] = []
        # A pipe without a reader fills up, and the server would block.
        reader = threading.Thread(target=lambda: said.extend(process.stderr or ()))
        try:
            for line in process.stderr:
                said.append(line)
                if started := _STARTED.search(line):
                    break
            else:
                raise AssertionError(f"the server did not start: {''.join(said)}")
            reader.start()
            yield Server(started[1], process, said)
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                raise
            finally:
                if reader.is_alive():
                    reader.join()
