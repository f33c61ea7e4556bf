"""An engine written from the protocol's description alone. Uses no code of the runtime, so the wire format is
pinned."""

import contextlib
import json
import mmap
import os
import signal
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import posix_ipc

JSON_MIB = 1
BIN_MIB = 1


class RawEngine:
    """Creates the five regions and eight semaphores, starts `aicirt`, speaks JSON. `close` ends everything."""

    def __init__(self, tokenizer: Path, cache_dir: Path, *flags: str) -> None:
        self.prefix = f"/aicitest-{os.getpid()}-{os.urandom(3).hex()}-"
        self._regions: dict[str, mmap.mmap] = {}
        self._semaphores: dict[str, posix_ipc.Semaphore] = {}
        for box in ("cmd", "resp", "cmd-side", "resp-side"):
            self._region(f"{box}-shm", JSON_MIB)
            self._semaphore(f"{box}-wr", 1)
            self._semaphore(f"{box}-rd", 0)
        self.bin = self._region("bin-shm", BIN_MIB)
        command = [sys.executable, "-m", "aici_runtime.main", f"--tokenizer={tokenizer}", f"--json-size={JSON_MIB}"]
        command += [f"--bin-size={BIN_MIB}", f"--name={self.prefix}", "--server", f"--cache-dir={cache_dir}", *flags]
        self.process = subprocess.Popen(command)

    def _region(self, name: str, mib: int) -> mmap.mmap:
        shared = posix_ipc.SharedMemory(self.prefix + name, posix_ipc.O_CREX, size=mib << 20)
        self._regions[name] = mmap.mmap(shared.fd, mib << 20)
        shared.close_fd()
        return self._regions[name]

    def _semaphore(self, name: str, value: int) -> None:
        self._semaphores[name] = posix_ipc.Semaphore(self.prefix + name, posix_ipc.O_CREX, initial_value=value)

    def send_bytes(self, payload: bytes, side: str = "") -> None:
        self._semaphores[f"cmd{side}-wr"].acquire(20)
        region = self._regions[f"cmd{side}-shm"]
        region[: 4 + len(payload)] = struct.pack("<I", len(payload)) + payload
        self._semaphores[f"cmd{side}-rd"].release()

    def receive(self, side: str = "", timeout_s: float = 20) -> Any:
        return json.loads(self.receive_bytes(side, timeout_s))

    def receive_bytes(self, side: str = "", timeout_s: float = 20) -> bytes:
        self._semaphores[f"resp{side}-rd"].acquire(timeout_s)
        region = self._regions[f"resp{side}-shm"]
        (length,) = struct.unpack_from("<I", region)
        response = bytes(region[4 : 4 + length])
        self._semaphores[f"resp{side}-wr"].release()
        return response

    def call(self, **request: Any) -> Any:
        self.send_bytes(json.dumps(request).encode())
        return self.receive()

    def side(self, **request: Any) -> Any:
        self.send_bytes(json.dumps(request).encode(), "-side")
        return self.receive("-side")

    def close(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        for name, region in self._regions.items():
            region.close()
            posix_ipc.unlink_shared_memory(self.prefix + name)
        for name, semaphore in self._semaphores.items():
            semaphore.close()
            posix_ipc.unlink_semaphore(self.prefix + name)
