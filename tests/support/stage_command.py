"""`aici stage`, run as a user runs the command."""

import signal
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.cli import AICI
from tests.support.model import default_model_dir


@dataclass
class StageCommand:
    """`aici stage`, which may be killed and started again at the same address."""

    folder: Path
    number: int
    address: str = ""
    process: subprocess.Popen[str] = field(init=False)

    def start(self) -> "StageCommand":
        listen = self.address.partition("#")[0] or "tcp://127.0.0.1:0"
        files = ["--token-file", str(self.folder / "token"), "--key-file", str(self.folder / f"key{self.number}")]
        command = [*AICI, "stage", "--listen", listen, "--model", str(default_model_dir()), "--threads", "1", *files]
        log = (self.folder / f"stage{self.number}.log").open("a")
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        assert self.process.stdout is not None
        first = self.process.stdout.readline().strip()
        assert self.address in ("", first), f"{first}: {Path(log.name).read_text()}"
        self.address = first
        return self

    def end(self, number: signal.Signals) -> int:
        self.process.send_signal(number)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return self.process.wait(30)

    def num_read(self) -> int:
        """Bytes that the process has read from files."""
        return int(Path(f"/proc/{self.process.pid}/io").read_text().split()[1])
