"""`aici engine`, run as a user runs the command."""

import os
import signal
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.cli import AICI
from tests.support.processes import command, descendants


@dataclass
class EngineCommand:
    """`aici engine`, which may be killed and started again at the same address. `store`: the folder of controllers;
    default, the store of the tests."""

    folder: Path
    number: int
    model: Path
    store: Path | None = None
    address: str = ""
    process: subprocess.Popen[str] = field(init=False)

    def start(self) -> "EngineCommand":
        listen = self.address.partition("#")[0] or "tcp://127.0.0.1:0"
        files = ["--token-file", str(self.folder / "token"), "--key-file", str(self.folder / f"key{self.number}")]
        words = [*AICI, "engine", "--listen", listen, "--model", str(self.model), "--threads", "1", *files]
        env = os.environ | ({} if self.store is None else {"AICI_STORE_DIR": str(self.store)})
        with (self.folder / f"engine{self.number}.log").open("a") as log:
            self.process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=log, text=True, env=env)
        assert self.process.stdout is not None
        first = self.process.stdout.readline().strip()
        assert self.address in ("", first), f"{first}: {self.said()}"
        self.address = first
        return self

    def said(self) -> str:
        return (self.folder / f"engine{self.number}.log").read_text()

    def engines(self) -> list[int]:
        """Return the engine processes of the host."""
        return [pid for pid in descendants(self.process.pid) if command(pid) == "aici-engine"]

    def end(self, number: signal.Signals) -> int:
        self.process.send_signal(number)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return self.process.wait(60)
