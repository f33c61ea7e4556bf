"""The server of a driver: `aici serve` with files of its own, started again on the same port after it was killed."""

import os
import socket
import subprocess
import time
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

from tests.engine.support import write_tiny_model
from tests.support.cli import AICI
from tests.support.processes import alive, command, descendants, wait_until

_START_S = 300.0
_END_S = 30.0
_MARK = "AICI_CHAOS_RUN"


def write_chat_model(folder: Path) -> Path:
    """Write a tiny model that the kernels run, with a chat template."""
    write_tiny_model(folder, context=512, num_heads=2)
    (folder / "chat_template.jinja").write_text("{% for message in messages %}{{ message.content }}{% endfor %}")
    return folder


class Served:
    """A context manager. All processes of all starts carry a mark in their environment, so that one that outlives its
    server is found. `num_engines`: that should run at the end."""

    def __init__(self, model: Path, folder: Path, *options: str, num_engines: int = 1) -> None:
        self._folder = folder
        self.num_engines = num_engines
        self._command = [*AICI, "serve", "--port", str(_free_port()), "--model", f"chaos={model}", *options]
        self._mark = f"{_MARK}={folder}-{os.getpid()}"
        self._process: subprocess.Popen[bytes] | None = None
        self.url = f"http://127.0.0.1:{self._command[self._command.index('--port') + 1]}"
        self.log = folder / "server.log"

    def __enter__(self) -> "Served":
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        assert self._process is not None
        self._process.terminate()
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> float:
        """Start the server and return the seconds until `/ready`."""
        began = time.monotonic()
        name, _, value = self._mark.partition("=")
        files = {"AICI_STORE_DIR": "modules", "AICI_RESPONSES_FILE": "responses.db", "AICI_BATCHES_FILE": "batches.db"}
        environment = os.environ | {name: value} | {key: str(self._folder / file) for key, file in files.items()}
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stderr=log, stdout=log, env=environment)
        if not wait_until(
            lambda: self._process is None or self._process.poll() is not None or self.is_ready(), _START_S
        ):
            raise TimeoutError(f"not ready within {_START_S:g} s: see {self.log}")
        if self._process.poll() is not None:
            raise ChildProcessError(f"the server has ended with {self._process.returncode}: see {self.log}")
        return time.monotonic() - began

    def kill_and_start(self) -> float:
        """Kill the API process, and return the seconds until a new one is ready."""
        assert self._process is not None
        began = time.monotonic()
        self._process.kill()
        self._process.wait()
        self.start()
        return time.monotonic() - began

    def is_ready(self) -> bool:
        try:
            with urlopen(f"{self.url}/ready", timeout=5) as answer:
                return bool(answer.status == 200)
        except (URLError, OSError):
            return False

    def find(self, name: str) -> list[int]:
        """Return the processes of the server with a name; `aici` is the API process."""
        return [self.pid] if name == "aici" else [pid for pid in descendants(self.pid) if command(pid) == name]

    def strays(self) -> set[int]:
        """Return the processes of all starts that do not belong to the server of now."""
        mine = {self.pid, *descendants(self.pid)}
        marked = {int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit() and self._marks(entry)}
        return alive(marked - mine)

    def _marks(self, entry: Path) -> bool:
        try:
            return self._mark.encode() in (entry / "environ").read_bytes().split(b"\0")
        except OSError:
            return False


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])
