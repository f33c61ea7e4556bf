"""The bundled toolchain (`ziglang`): C and C++ to objects, objects to a controller, Zig to a controller.

All C and C++ is compiled with the same flags: zig keeps one compiled C library per set of flags (about 20 s, once), and
a build after that takes about a second. What a file is called and where it lies never reaches the output.
"""

import importlib.util
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import Final

from aici_runtime.errors import ControllerError, UnavailableError

C_SUFFIXES: Final = {".c": "cc", ".cpp": "c++", ".cc": "c++", ".cxx": "c++"}
STACK_BYTES: Final = 262144

TARGET: Final = ("-target", "wasm32-wasi", "-O3", "-g0")
CXX: Final = ("-std=c++20", "-fno-exceptions", "-fno-rtti", "-fno-threadsafe-statics")
COMPILE: Final = ("-ffunction-sections", "-fdata-sections", "-Wall", "-Wextra")
LINK: Final = ("-mexec-model=reactor", "-s", "-Wl,--gc-sections", f"-Wl,-z,stack-size={STACK_BYTES}")
ZIG: Final = ("-target", "wasm32-freestanding", "-O", "ReleaseFast", "-fstrip", "-fno-entry", "-rdynamic")
FLAGS: Final = (TARGET, CXX, COMPILE, LINK, ZIG)


def version() -> str:
    try:
        return f"ziglang-{installed_version('ziglang')}"
    except PackageNotFoundError:
        return "none"


def require() -> None:
    if importlib.util.find_spec("ziglang") is None:
        raise UnavailableError("ziglang is not installed", hint="pip install 'aici[build]'")


def compile(source: Path, out: Path, *, root: Path, include: Sequence[Path]) -> str:  # noqa: A001
    """One C or C++ file to an object; returns the warnings. `root` is what `__FILE__` is written without."""
    driver = C_SUFFIXES[source.suffix]
    language = CXX if driver == "c++" else ()
    folders = [f"-I{folder}" for folder in (*include, source.parent)]
    flags = [*TARGET, *COMPILE, *language, f"-ffile-prefix-map={root}=.", *folders]
    return _run(f"{source} does not compile", driver, *flags, "-c", str(source), "-o", str(out))


def link(objects: Sequence[Path], out: Path) -> str:
    """As C when that is enough: the C++ standard library is header-only as far as the SDK uses it, and building the
    rest of it takes as long as the C library again. A controller that needs it (std::string) is linked a second time.
    """
    names = [str(path) for path in objects]
    wrong = "the controller does not link"
    try:
        return _run(wrong, "cc", *TARGET, *LINK, *names, "-o", str(out))
    except ControllerError as error:
        if "std::__1::" not in error.message:
            raise
        return _run(wrong, "c++", *TARGET, *LINK, *names, "-o", str(out))


def build_zig(root: Path, out: Path, *, binding: Path) -> str:
    """A controller in Zig: `root` may import the module `aici`, which is `binding`."""
    modules = ("--dep", "aici", f"-Mroot={root}", f"-Maici={binding}")
    flags = (*ZIG, "--stack", str(STACK_BYTES), f"-femit-bin={out}")
    return _run(f"{root} does not compile", "build-exe", *flags, *modules)


def _run(wrong: str, *arguments: str) -> str:
    command = [sys.executable, "-P", "-m", "ziglang", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    if done.returncode:
        raise ControllerError(f"{wrong}\n{done.stderr.strip()}")
    return done.stderr
