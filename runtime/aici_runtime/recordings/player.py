"""Start any program that speaks the runtime protocol and talk to the program over raw channels."""

import os
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import orjson

from aici_base.errors import AiciError, RuntimeDiedError, UsageError
from aici_runtime.channels.channel import MIB, Channels, Mailbox, MessageTooLargeError
from aici_runtime.channels.mailbox import Side
from aici_runtime.memory import shm
from aici_runtime.runtime_process import RuntimeProcess

_INSTALL_S = 120.0


class Player:
    """Owns the process, its channels and the mask region. For use by one thread."""

    masks: shm.Region

    def __init__(self, command: Sequence[str], folder: Path, *, json_size_bytes: int, bin_size_bytes: int) -> None:
        """`folder`: the working directory of the program."""
        shm.sweep()
        prefix = shm.unique_prefix()
        self._channels = Channels(prefix, "semaphore", json_size_bytes)
        self._boxes: dict[tuple[str, str], Mailbox] = {}
        self._bin = f"{prefix}bin-shm"
        self._died = threading.Event()
        self._process: RuntimeProcess | None = None
        try:
            for direction, side in self._channels.each():
                self._boxes[direction, side] = self._channels.create(direction, side)
            self.masks = shm.create_region(self._bin, bin_size_bytes)
            sizes = [f"--json-size={json_size_bytes // MIB}", f"--bin-size={bin_size_bytes // MIB}"]
            environment = {name: value for name, value in os.environ.items() if name != "AICI_TRACE"}
            command = [*command, *sizes, f"--name={prefix}", "--server"]
            self._process = RuntimeProcess(command, folder=folder, environment=environment)
            self._watcher = threading.Thread(target=self._watch, args=(self._process,), daemon=True)
            self._watcher.start()
        except BaseException:
            self.close()
            raise

    def ask(self, side: Side, message: bytes, *, is_answered: bool) -> Any:
        """Send a message and return the response. For a message without a response (`stop`), wait until the runtime has
        ended and return None. Raise RuntimeDiedError if the runtime dies."""
        try:
            self._boxes["cmd", side].send(message)
        except MessageTooLargeError as error:
            raise UsageError(str(error)) from error
        if not is_answered:
            self._died.wait()
            return None
        answer = self._boxes["resp", side].receive()
        if self._died.is_set():
            said = "" if self._process is None else self._process.last_words()
            raise RuntimeDiedError(f"the runtime has died\n{said}".rstrip())
        return orjson.loads(answer)

    def _watch(self, process: RuntimeProcess) -> None:
        process.wait_ended()
        self._died.set()
        for box in self._boxes.values():
            box.wake_everyone()

    def close(self) -> None:
        if self._process is not None:
            self._process.end()
            self._watcher.join()
        self._channels.unlink()
        shm.unlink_region(self._bin)
        for box in self._boxes.values():
            box.close()
        if hasattr(self, "masks"):
            self.masks.close()

    def __enter__(self) -> "Player":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def install(command: Sequence[str], folder: Path, wasm: bytes) -> None:
    """Put a module into the store of the program."""
    path = folder / "module.wasm"
    path.write_bytes(wasm)
    done = subprocess.run(
        [*command, f"--module={path}"], cwd=folder, capture_output=True, text=True, timeout=_INSTALL_S, check=False
    )
    if done.returncode != 0:
        raise AiciError(f"a module of the recording cannot be installed: {done.stderr.strip()}")
