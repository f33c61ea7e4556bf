"""A cluster on one Linux: `aici serve` on one machine of `netns`, node daemons on others."""

import contextlib
import json
import re
import subprocess
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.support.cli import AICI
from tests.support.model import default_model_dir
from tests.support.netns import Machine, Network, Process

_STARTED = re.compile(r"serving .* at (http://[^\s\"]+)")
PROMPT = "Once upon a time, in a small village,"


class Running:
    """A command in a machine. `said`: the lines of stderr so far."""

    def __init__(self, machine: Machine, args: list[str], folder: Path) -> None:
        self.machine = machine
        self.said: list[str] = []
        self.printed: list[str] = []
        own = folder / machine.name
        for name in ("run", "state"):
            (own / name).mkdir(parents=True, exist_ok=True)
        env = {
            "XDG_RUNTIME_DIR": str(own / "run"),
            "XDG_STATE_HOME": str(own / "state"),
            "XDG_CONFIG_HOME": str(folder),
            "OMP_NUM_THREADS": "1",
        }
        self.env = env
        self.process: Process = machine.start([*AICI, *args], env=env, stderr=subprocess.PIPE)
        for stream, lines in ((self.process.stderr, self.said), (self.process.stdout, self.printed)):
            threading.Thread(target=lambda s=stream, t=lines: t.extend(_quietly(s)), daemon=True).start()

    def wait_for(self, found: Callable[[str], Any], timeout_s: float = 120) -> Any:
        """Wait until `found` gives something for a line of stderr or stdout."""
        deadline = time.monotonic() + timeout_s
        while True:
            for line in [*self.said, *self.printed]:
                if answer := found(line):
                    return answer
            assert self.process.poll() is None, "".join(self.said[-30:])
            assert time.monotonic() < deadline, "".join(self.said[-30:])
            time.sleep(0.05)


def _quietly(stream: Any) -> Iterator[str]:
    with contextlib.suppress(OSError, ValueError):
        yield from stream


class ServedCluster:
    """`serve` starts the server, `join` a node."""

    def __init__(self, network: Network, folder: Path, *, model: Path | None = None, head_bytes: int | None = None):
        self.network, self.folder = network, folder
        self.model = model or default_model_dir()
        (folder / "aici").mkdir(parents=True, exist_ok=True)
        self.nodes: dict[str, Running] = {}
        self.server: Running | None = None
        self.head = network.machine("head", memory_bytes=head_bytes)
        self.url = ""

    def write_token(self) -> None:
        path = self.folder / "aici" / "cluster-token"
        path.touch(mode=0o600)
        path.write_text("ab" * 32)

    def join(
        self, name: str, *args: str, memory: str = "700MiB", port: int = 0, limit_bytes: int | None = None
    ) -> Running:
        machine = self.network.machines.get(name) or self.network.machine(name, memory_bytes=limit_bytes)
        known = [] if "--model" in args else ["--model", str(self.model)]
        common = ["--name", name, "--memory", memory, "--threads", "1", "--listen", f"{machine.address}:{port}", *known]
        self.nodes[name] = Running(machine, ["node", "join", *args, *common], self.folder)
        return self.nodes[name]

    def run(self, name: str, *args: str) -> Running:
        return Running(self.network.machines[name], list(args), self.folder)

    def serve(self, *args: str) -> Running:
        common = ["--model", str(self.model), "--host", self.head.address, "--port", "0"]
        # Replicas on nodes have the threads that the nodes give.
        common += [] if "--replicas" in args else ["--threads", "1"]
        self.server = Running(self.head, ["serve", *common, *args], self.folder)
        return self.server

    def wait_ready(self) -> str:
        assert self.server is not None
        self.url = self.server.wait_for(lambda line: (found := _STARTED.search(line)) and found[1])
        return self.url

    def complete(self, max_tokens: int = 40, prompt: str = PROMPT) -> tuple[str, float]:
        """Return a greedy completion, and the longest time between two events."""
        body = {"model": self.model.name, "prompt": prompt, "max_tokens": max_tokens, "temperature": 0}
        request = urllib.request.Request(
            f"{self.url}/v1/completions",
            data=json.dumps({**body, "stream": True}).encode(),
            headers={"content-type": "application/json"},
        )
        text, last, gap = "", time.monotonic(), 0.0
        with urllib.request.urlopen(request, timeout=120) as answer:
            for line in answer:
                if line.startswith(b"data: {"):
                    event = json.loads(line[6:])
                    assert "error" not in event, event
                    gap, last = max(gap, time.monotonic() - last), time.monotonic()
                    text += event["choices"][0]["text"] if event["choices"] else ""
        return text, gap

    def state(self) -> dict[str, Any]:
        with urllib.request.urlopen(f"{self.url}/cluster", timeout=30) as answer:
            found: dict[str, Any] = json.load(answer)["pipeline"]
        return found

    def during(self, act: Callable[[], Any], max_tokens: int = 200, after_s: float = 0.5) -> tuple[str, float]:
        """Return a completion, with `act` called while it runs."""
        timer = threading.Timer(after_s, act)
        timer.start()
        try:
            return self.complete(max_tokens)
        finally:
            timer.join()


def processes_in(machine: Machine, word: str) -> list[int]:
    """Return the ids, outside of the machine, of its processes with `word` in their command lines."""
    inside = Path(f"/proc/{machine.pid}/ns/pid").readlink()
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if word in words and (folder / "ns" / "pid").readlink() == inside:
                found.append(int(folder.name))
    return sorted(found)
