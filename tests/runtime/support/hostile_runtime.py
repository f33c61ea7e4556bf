"""`aicirt`, where guests have native code: a line `native: [NAMES]` in the log of a guest makes the attempts of
`native_code.py` with these names in the guest's process, and the outcomes go to the log.

Nothing else differs from `aicirt`: the sandbox is the real one.
"""

import os
import sys
from dataclasses import dataclass
from pathlib import Path

import orjson

from aici_runtime import main
from aici_runtime.config import RuntimeConfig
from aici_runtime.guests.host_functions import HostFunctions
from aici_runtime.workers import namespaces
from tests.runtime.support import native_code

MARK = b"native: "
NO_NAMESPACES = "AICI_TEST_NO_NAMESPACES"
"""A variable of the environment: the kernel refuses new namespaces."""

_START = f"import sys; sys.path[:0] = [{str(Path(__file__).parents[3])!r}]; import {__name__} as r; r.run()"


@dataclass(frozen=True, slots=True, kw_only=True)
class HostileConfig(RuntimeConfig):
    """Settings of a runtime whose guests have native code."""

    def command(self, prefix: str) -> list[str]:
        command = super(HostileConfig, self).command(prefix)
        at = command.index("-m")
        return [*command[:at], "-c", _START, *command[at + 2 :]]


def run() -> None:
    """Be the runtime."""
    plain_log = HostFunctions.log

    def log(self: HostFunctions, text: bytes) -> None:
        if text.startswith(MARK):
            names = orjson.loads(text.removeprefix(MARK))
            text = orjson.dumps({name: native_code.outcome(name) for name in names}) + b"\n"
        plain_log(self, text)

    if NO_NAMESPACES in os.environ:
        namespaces.leave_others = lambda _: (False, "switched off by a test")
    HostFunctions.log = log  # type: ignore[method-assign]
    sys.exit(main.main())
