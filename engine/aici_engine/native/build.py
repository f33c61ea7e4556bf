"""Compile the C kernels once for every CPU level of this machine's architecture. Needs only the package `ziglang`."""

import platform
import sys
from pathlib import Path
from typing import Final

from aici_controllers.native_build import GLIBC, NativeBuild, build_stale
from aici_engine.native.cpu_levels import LIBRARIES, SOURCES, CpuLevel, levels

FLAGS: Final = (
    *("-O3", "-g0", "-s", "-shared", "-fPIC", "-pthread", "-fvisibility=hidden"),
    "-ffp-contract=off",  # only explicit fma, so that all levels round alike
    "-fno-math-errno",
    *("-Wall", "-Wextra", "-Werror"),
)


def build(out: Path = LIBRARIES) -> list[Path]:
    """Build the libraries that are missing or stale, and return all libraries, lowest level first.

    If the architecture has no level, the result is empty and stderr says so. Raises ControllerError with the compiler's
    output, UnavailableError without a compiler.
    """
    if not levels():
        sys.stderr.write(f"no native kernels exist for {_platform()}: torch will run models\n")
    return build_stale([of_level(level, platform.machine(), out / level.library) for level in levels()])


def wheel_tag() -> str:
    """The platform tag of a wheel with the libraries."""
    return f"py3-none-manylinux_{GLIBC.replace('.', '_')}_{platform.machine()}"


def of_level(level: CpuLevel, machine: str, out: Path) -> NativeBuild:
    return NativeBuild(
        out=out,
        sources=SOURCES,
        machine=machine,
        cpu=level.cpu,
        flags=FLAGS,
        version="AICI_NATIVE_ABI",
        wrong=f"the native kernels do not compile for {level.name}",
    )


def _platform() -> str:
    return f"{platform.system()} {platform.machine()} {platform.libc_ver()[0]}".strip()


if __name__ == "__main__":
    for built in build():
        sys.stdout.write(f"{built} {built.stat().st_size} bytes\n")
