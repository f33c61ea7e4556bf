"""Compiles the kernels in C, once for each level of this machine's kind of processor. Needs `ziglang`, nothing else."""

import platform
import sys
import tempfile
from pathlib import Path
from typing import Final

from aici_base.cache_files import write_atomically
from aici_controllers import zig
from aici_controllers.compilers import Command, run_all
from aici_controllers.objects import digest
from aici_engine.native.cpu_levels import LIBRARIES, SOURCES, CpuLevel, abi, levels, source_files

GLIBC: Final = "2.28"
"""The oldest that is served: torch's wheels need it too."""
FLAGS: Final = (
    *("-O3", "-g0", "-s", "-shared", "-fPIC", "-pthread", "-fvisibility=hidden"),
    "-ffp-contract=off",  # products are fused with sums only where a source asks for it, at every level
    "-fno-math-errno",
    *("-Wall", "-Wextra", "-Werror"),
)


def build(out: Path = LIBRARIES) -> list[Path]:
    """Leaves a library as it is while its .hash says that neither sources, nor flags, nor toolchain changed.

    Returns the libraries, worst level first: none, and stderr says so, where there is no level for this machine.
    ControllerError with what the compiler says; UnavailableError when it is not installed.
    """
    if not levels():
        sys.stderr.write(f"native kernels are not built for {_here()}: torch will compute\n")
    stale = {level: state for level in levels() if (state := _state(level)) != _built(level, out)}
    if stale:
        zig.require()
        with tempfile.TemporaryDirectory(prefix="aici-native-") as folder:
            said = run_all([_compile(level, Path(folder)) for level in stale])
            sys.stderr.write("".join(said))
            for level, state in stale.items():
                # Replaced, not changed: a process may have mapped it. Its note goes first, so that it never lies.
                _note(level, out).unlink(missing_ok=True)
                write_atomically(out / level.library, (Path(folder) / level.library).read_bytes())
                _note(level, out).write_text(state)
    return [out / level.library for level in levels()]


def wheel_tag() -> str:
    """Of a wheel that carries the libraries."""
    return f"py3-none-manylinux_{GLIBC.replace('.', '_')}_{platform.machine()}"


def _compile(level: CpuLevel, folder: Path) -> Command:
    target = ("-target", f"{platform.machine()}-linux-gnu.{GLIBC}", f"-mcpu={level.cpu}")
    sources = [str(path) for path in source_files() if path.suffix == ".c"]
    names = (f"-ffile-prefix-map={SOURCES}=.", f"-DAICI_NATIVE_ABI={abi()}")
    wrong = f"the native kernels do not compile for {level.name}"
    return zig.command(wrong, "cc", *target, *FLAGS, *names, *sources, "-lm", "-o", str(folder / level.library))


def _state(level: CpuLevel) -> str:
    return f"{digest(source_files(), SOURCES)[:16]} {zig.version()} {GLIBC} {FLAGS} {level.cpu}\n"


def _built(level: CpuLevel, out: Path) -> str:
    note = _note(level, out)
    return note.read_text() if note.exists() and (out / level.library).exists() else ""


def _note(level: CpuLevel, out: Path) -> Path:
    return (out / level.library).with_suffix(".hash")


def _here() -> str:
    return f"{platform.system()} {platform.machine()} {platform.libc_ver()[0]}".strip()


if __name__ == "__main__":
    for built in build():
        sys.stdout.write(f"{built} {built.stat().st_size} bytes\n")
