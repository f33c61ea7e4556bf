"""The server under attack: a process of this run, with three keys and a store of its own."""

import re
import secrets
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from aici_base.errors import UnavailableError

ROLES: Final = ("victim", "attacker", "other")
_START_S: Final = 180.0
_STOP_S: Final = 10.0


class StartedServer:
    """A context manager: the server has ended when the context ends.

    `folder`: for keys, modules and batches. A later server with the same folder finds the modules compiled.
    """

    def __init__(
        self, folder: Path, options: Sequence[str], *, python: str = sys.executable, descriptors: int | None = None
    ) -> None:
        self.keys = _keys(folder)
        files = {"--api-key-file": "keys.toml", "--responses-file": "responses.db", "--batches-file": "batches.db"}
        named = [word for flag, name in files.items() for word in (flag, str(folder / name))]
        command = [python, "-P", "-m", "aici_cli", "serve", "--port", "0", "--log-format", "text", *named, *options]
        if descriptors is not None:
            command = ["sh", "-c", f'ulimit -n {descriptors} && exec "$@"', "sh", *command]
        self._command, self._folder = command, folder

    def __enter__(self) -> "StartedServer":
        import os

        environment = os.environ | {"AICI_STORE_DIR": str(self._folder / "modules")}
        self.process = subprocess.Popen(
            self._command, stderr=subprocess.PIPE, text=True, errors="replace", env=environment, process_group=0
        )
        too_late = threading.Timer(_START_S, self.process.kill)
        too_late.start()
        try:
            self.url = self._address()
        except BaseException:
            self.__exit__()
            raise
        finally:
            too_late.cancel()
        return self

    def _address(self) -> str:
        assert self.process.stderr is not None
        said = []
        for line in self.process.stderr:
            said.append(line)
            if found := re.search(r"serving .* at (https?://\S+)", line):
                # A full pipe would block the server.
                threading.Thread(target=_drain, args=[self.process], daemon=True).start()
                return found[1]
        raise UnavailableError(f"the server did not start: {''.join(said[-20:]).strip()}")

    def __exit__(self, *exc: object) -> None:
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def _drain(process: subprocess.Popen[str]) -> None:
    for _ in process.stderr or ():
        pass


def _keys(folder: Path) -> Mapping[str, str]:
    """Write `keys.toml` and return the key of each role."""
    keys = {role: f"sk-{secrets.token_hex(16)}" for role in ROLES}
    file = folder / "keys.toml"
    file.touch(mode=0o600)
    # The attacker may send chat templates: their limits are under attack, too.
    file.write_text("".join(f'[keys.{role}]\nkey = "{key}"\ntemplates = true\n' for role, key in keys.items()))
    return keys
