"""Compile the C kernels once for every CPU level of this machine's architecture. Needs only the package `ziglang`."""

import platform
import sys
import tempfile
from pathlib import Path
from typing import Final

from aici_base.cache_files import write_atomically
from aici_controllers import zig
from aici_controllers.compilers import Command, run_all
from aici_controllers.object_cache import digest
from aici_engine.native.cpu_levels import LIBRARIES, SOURCES, CpuLevel, abi, levels, source_files

GLIBC: Final = "2.28"
"""The oldest supported glibc, as for the wheels of torch."""
FLAGS: Final = (
    *("-O3", "-g0", "-s", "-shared", "-fPIC", "-pthread", "-fvisibility=hidden"),
    "-ffp-contract=off",  # only explicit fma, so that all levels round alike
    "-fno-math-errno",
    *("-Wall", "-Wextra", "-Werror"),
)


def build(out: Path = LIBRARIES) -> list[Path]:
    """Build the libraries that are missing or stale, and return all libraries, lowest level first.

    The .hash file of a library records sources, flags and toolchain. If the architecture has no level, the result is
    empty and stderr says so. Raises ControllerError with the compiler's output, UnavailableError without a compiler.
    """
    if not levels():
        sys.stderr.write(f"no native kernels exist for {_platform()}: torch will run models\n")
    stale = {level: state for level in levels() if (state := _state(level)) != _built(level, out)}
    if stale:
        zig.require()
        with tempfile.TemporaryDirectory(prefix="aici-native-") as folder:
            said = run_all([_compile(level, Path(folder)) for level in stale])
            sys.stderr.write("".join(said))
            for level, state in stale.items():
                # Replace the file, because a process may have mapped the old one. Delete the .hash first: a crash in
                # between must not leave a wrong .hash.
                _hash_file(level, out).unlink(missing_ok=True)
                write_atomically(out / level.library, (Path(folder) / level.library).read_bytes())
                _hash_file(level, out).write_text(state)
    return [out / level.library for level in levels()]


def wheel_tag() -> str:
    """The platform tag of a wheel with the libraries."""
    return f"py3-none-manylinux_{GLIBC.replace('.', '_')}_{platform.machine()}"


def _compile(level: CpuLevel, folder: Path) -> Command:
    target = ("-target", f"{platform.machine()}-linux-gnu.{GLIBC}", f"-mcpu={level.cpu}")
    sources = [str(path) for path in source_files() if path.suffix == ".c"]
    names = (f"-ffile-prefix-map={SOURCES}=.", f"-DAICI_NATIVE_ABI={abi()}")
    failure = f"the native kernels do not compile for {level.name}"
    return zig.command(failure, "cc", *target, *FLAGS, *names, *sources, "-lm", "-o", str(folder / level.library))


def _state(level: CpuLevel) -> str:
    return f"{digest(source_files(), SOURCES)[:16]} {zig.version()} {GLIBC} {FLAGS} {level.cpu}\n"


def _built(level: CpuLevel, out: Path) -> str:
    hash_file = _hash_file(level, out)
    return hash_file.read_text() if hash_file.exists() and (out / level.library).exists() else ""


def _hash_file(level: CpuLevel, out: Path) -> Path:
    return (out / level.library).with_suffix(".hash")


def _platform() -> str:
    return f"{platform.system()} {platform.machine()} {platform.libc_ver()[0]}".strip()


if __name__ == "__main__":
    for built in build():
        sys.stdout.write(f"{built} {built.stat().st_size} bytes\n")
