"""Print what compiling costs, with all bounds and limits in place: `python -m tests.runtime.modules.compile_cost`.

First a guest that ships, with its functions once to eight times and with much data; then modules made to be slow.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from aici_controllers.catalog import guest_path
from aici_runtime.modules.compiler import MEMORY_BYTES, TIMEOUT_S
from tests.runtime.support.wasm_maker import BOMBS, larger

_ROW = "| {:<30} | {:>10} | {:>10} | {:>9} | {:>7} | {} |"
_SHOWN_CHARS = 75


def main() -> None:
    print(_ROW.format("module", "bytes", "code", "processor", "memory", "result"))
    guest = guest_path("jsctrl").read_bytes()
    for times in (1, 2, 4, 8):
        row(f"jsctrl, functions {times} times", larger(guest, times, 1))
    row("jsctrl and 9 MB of data", larger(guest, 1, 9_000_000))
    for name, make in BOMBS.items():
        for size in (3_000, 10_000, 40_000, 160_000, 640_000):
            row(name, make(size))


def row(name: str, wasm: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "wasm", Path(folder) / "code"
        source.write_bytes(wasm)
        arguments = [str(source), str(target), str(int(TIMEOUT_S)), str(MEMORY_BYTES)]
        command = [sys.executable, "-m", "aici_runtime.modules.compiler_process", *arguments]
        with (Path(folder) / "reason").open("w+") as reason:
            with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=reason) as child:
                _, status, usage = os.wait4(child.pid, 0)
                child.returncode = os.waitstatus_to_exitcode(status)
            reason.seek(0)
            text = reason.read().strip()
        # A bomb is no controller: the compiler process says so when it has compiled the bomb.
        if child.returncode == 0 or "is not a controller" in text:
            result = "compiled"
        elif child.returncode < 0:
            result = f"ended by signal {-child.returncode}"
        else:
            result = text[:_SHOWN_CHARS]
        code = f"{target.stat().st_size:,}" if target.exists() else ""
        processor = f"{usage.ru_utime + usage.ru_stime:.2f} s"
        print(_ROW.format(name, f"{len(wasm):,}", code, processor, f"{usage.ru_maxrss >> 10} MB", result), flush=True)


if __name__ == "__main__":
    main()
