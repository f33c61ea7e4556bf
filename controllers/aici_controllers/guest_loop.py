"""Compile the loop of the guests' processes (`aici_runtime/guests/native`). Needs only the package `ziglang`."""

import platform
import sys
from pathlib import Path
from typing import Final

from aici_controllers.native_build import NativeBuild, build_stale
from aici_runtime.guests.native import library

FLAGS: Final = (
    *("-O2", "-g0", "-s", "-shared", "-fPIC", "-fvisibility=hidden"),
    *("-Wall", "-Wextra", "-Werror"),
)


def build(out: Path = library.LIBRARY) -> list[Path]:
    """Build the library if it is missing or stale, and return it; nothing where the platform has no loop.

    Raises ControllerError with the compiler's output, UnavailableError without a compiler.
    """
    return build_stale([of_machine(platform.machine(), out)]) if library.is_supported() else []


def of_machine(machine: str, out: Path) -> NativeBuild:
    return NativeBuild(
        out=out,
        sources=library.SOURCES,
        machine=machine,
        cpu="baseline",
        flags=FLAGS,
        version="AICI_GUEST_LOOP_ABI",
        wrong="the loop of the guests does not compile",
    )


if __name__ == "__main__":
    for path in build():
        sys.stdout.write(f"{path} {path.stat().st_size} bytes\n")
