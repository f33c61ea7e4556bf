"""A test engine: creates the shared objects, starts any `aicirt`, and sends messages chosen by a test."""

import base64
import contextlib
import itertools
import json
import os
import signal
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from tests.wire.support.mailbox import MIB, PATIENCE_S, FutexBox, Mailbox, SemaphoreBox, create_region, unlink

Version = Literal["v1", "v2"]
Sync = Literal["sem", "futex"]
Side = Literal["", "-side"]
SIDES: tuple[Side, ...] = ("", "-side")
ADMIN = {"user": "root", "is_admin": True}

PATIENT: dict[Version, tuple[str, ...]] = {
    "v1": ("--wasm-max-pre-step-time=2000", "--wasm-max-step-time=2000", "--wasm-max-init-time=5000"),
    "v2": ("--wasm-max-step-time=2000", "--wasm-max-init-time=5000"),
}
"""Flags with wide time limits: a test must not fail because the machine is busy."""

_numbers = itertools.count(1000)  # below: the ids used by fuzzing


def fresh() -> int:
    """Return a number never used for a sequence or a request in this process."""
    return next(_numbers)


@dataclass(frozen=True)
class Binary:
    """The `aicirt` under test, and a folder for its cache: upstream uses `./cache`, ours follows the environment."""

    command: tuple[str, ...]
    folder: Path
    tokenizer: Path
    versions: tuple[Version, ...]
    flags: tuple[str, ...] = ()

    def run(self, *flags: str) -> subprocess.CompletedProcess[bytes]:
        """Run a job that ends by itself."""
        return subprocess.run(
            [*self.command, *flags], cwd=self.folder, env=self.environment(), capture_output=True, timeout=60
        )

    def few_templates(self) -> tuple[str, ...]:
        """The flag for a runtime with templates: keep only a few, so that growing memory means a leak."""
        return ("--templates=4",) if b"--templates" in self.run("--help").stdout else ()

    def environment(self) -> dict[str, str]:
        places = {"AICI_STORE_DIR": str(self.folder / "store"), "XDG_CACHE_HOME": str(self.folder / "cache-home")}
        return os.environ | places


@dataclass
class Engine:
    """A runtime and its shared objects; `close` ends the runtime and removes all names. `extra`: additional flags.

    `capabilities` and `dtype` are passed with protocol v2 only; if empty, they are left out.
    """

    binary: Binary
    version: Version
    sync: Sync = "sem"
    extra: Sequence[str] = ()
    json_mib: int = 1
    bin_mib: int = 1
    capabilities: Sequence[str] = ("fork", "backtrack", "ff-tokens")
    dtype: str = "f32"
    process: subprocess.Popen[bytes] = field(init=False)

    def __post_init__(self) -> None:
        self.prefix = f"/aicitest-{os.getpid()}-{os.urandom(3).hex()}-"
        self.boxes: dict[str, Mailbox] = {
            name: self._box(name) for side in SIDES for name in (f"cmd{side}", f"resp{side}")
        }
        self.bin = create_region(f"{self.prefix}bin-shm", self.bin_mib * MIB)
        self._modules: dict[bytes, str] = {}
        command = [*self.binary.command, *self._flags()]
        self.process = subprocess.Popen(command, cwd=self.binary.folder, env=self.binary.environment())

    def _box(self, name: str) -> Mailbox:
        if self.sync == "futex":
            return FutexBox(self.prefix + name, self.json_mib * MIB, is_response=name.startswith("resp"))
        return SemaphoreBox(self.prefix + name, self.json_mib * MIB)

    def _flags(self) -> list[str]:
        flags = [
            f"--tokenizer={self.binary.tokenizer}",
            f"--name={self.prefix}",
            "--server",
            *self.extra,
            *self.binary.flags,
        ]
        flags += [f"--json-size={self.json_mib}", f"--bin-size={self.bin_mib}"]
        flags += ["--futex"] if self.sync == "futex" else []
        if self.version == "v2":
            flags += [f"--cap-{name}" for name in self.capabilities]
            flags += [f"--bias-dtype={self.dtype}"] if self.dtype else []
        return flags

    def send(self, message: bytes | dict[str, Any], side: Side = "") -> None:
        self.boxes[f"cmd{side}"].send(message if isinstance(message, bytes) else json.dumps(message).encode())

    def receive(self, side: Side = "", patience_s: float = PATIENCE_S) -> Any:
        return json.loads(self.boxes[f"resp{side}"].receive(patience_s))

    def ask(self, message: bytes | dict[str, Any], side: Side = "") -> Any:
        self.send(message, side)
        return self.receive(side)

    def call(self, op: str, **fields: Any) -> Any:
        """Send a command on the main channel and return the whole response."""
        return self.ask({"op": op} | fields)

    def side(self, op: str, **fields: Any) -> Any:
        """Send a command on the side channel, as an administrator unless `$auth` is given."""
        return self.ask({"op": op, "$auth": ADMIN} | fields, "-side")

    def upload(self, wasm: bytes) -> str:
        """Upload a module and return its id."""
        if wasm not in self._modules:
            response = self.side("mk_module", binary=base64.b64encode(wasm).decode())
            assert response["type"] == "ok", response
            self._modules[wasm] = response["data"]["module_id"]
        return self._modules[wasm]

    def is_well(self) -> None:
        """Check that both channels answer."""
        for side in SIDES:
            assert self.ask({"op": "ping"}, side) == {"type": "ok", "data": {"pong": 1}}

    def wait_exit(self, patience_s: float = PATIENCE_S) -> int:
        return self.process.wait(patience_s)

    def close(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.kill()
        self.process.wait()
        for box in self.boxes.values():
            box.close()
        self.bin.close()
        unlink(f"{self.prefix}bin-shm")

    def __enter__(self) -> "Engine":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def error(response: Any, *, is_user_error: bool | None = None) -> str:
    """Check the shape of an error response and return its text."""
    assert response["type"] == "error", response
    assert isinstance(response["is_user_error"], bool)
    if is_user_error is not None:
        assert response["is_user_error"] is is_user_error, response
    return str(response["error"])


def data(response: Any) -> Any:
    assert response["type"] == "ok", response
    return response["data"]
