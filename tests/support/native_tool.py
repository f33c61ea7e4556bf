"""Ask the tool of a guest that is built natively (`controllers/sdk/native/run.py tool GUEST`): for millions of
questions, because the program answers about a hundred times as many questions a second as a fresh Wasm instance."""

import json
import resource
import subprocess
import sys
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any, Final

_RUN: Final = Path(__file__).resolve().parents[2] / "controllers" / "sdk" / "native" / "run.py"
_MEMORY_MAX_BYTES: Final = 4 << 30


class NoAnswerError(Exception):
    """The program took too long, or ended."""


class NativeTool:
    """One process for all questions; it starts again after a question that ended it. Close after use.

    `program`: what `run.py tool` has built; without it, the tool is built now.
    """

    def __init__(self, guest: str, *, limit_s: float = 20.0, program: str | None = None) -> None:
        self._program = program or built_tool(guest)
        self._limit_s = limit_s
        self._process: subprocess.Popen[bytes] | None = None

    def ask(self, question: object) -> Any:
        """Return the guest's answer. Raise NoAnswerError without one."""
        return self.ask_raw(json.dumps(question, ensure_ascii=False).encode(errors="surrogatepass"))

    def ask_raw(self, question: bytes) -> Any:
        """The same for the text of a question, one line."""
        if self._process is None:
            self._process = subprocess.Popen(
                [self._program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, preexec_fn=_limit_memory
            )
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        try:
            stdin.write(question + b"\n")
            stdin.flush()
        except BrokenPipeError:
            self.close()
            raise NoAnswerError("the program ended") from None
        ready = wait([stdout], self._limit_s)
        line = stdout.readline() if ready else b""
        if not line:
            self.close()
            raise NoAnswerError("the program ended" if ready else f"no answer within {self._limit_s:.0f} s")
        return json.loads(line)

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None


def built_tool(guest: str) -> str:
    """Return the path of the program, built now if the sources changed."""
    done = subprocess.run([sys.executable, str(_RUN), "tool", guest], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return done.stdout.strip()


def _limit_memory() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_MAX_BYTES, _MEMORY_MAX_BYTES))
