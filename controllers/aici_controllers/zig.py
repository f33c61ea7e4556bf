"""The bundled toolchain (`ziglang`): C and C++ to objects, objects to a controller, Zig to a controller.

All C and C++ is compiled with the same flags: zig keeps one compiled C library per set of flags (about 20 s, once), and
a later build takes about a second. The output does not depend on the name or folder of a source.
"""

import importlib.util
import os
import re
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from aici_base.errors import ControllerError, UnavailableError
from aici_controllers.compilers import Command, run, run_all

C_SUFFIXES: Final = {".c": "cc", ".cpp": "c++", ".cc": "c++", ".cxx": "c++"}
STACK_BYTES: Final = 262144

TARGET: Final = ("-target", "wasm32-wasi", "-O3", "-g0")
CXX: Final = ("-std=c++20", "-fno-exceptions", "-fno-rtti", "-fno-threadsafe-statics")
COMPILE: Final = ("-ffunction-sections", "-fdata-sections", "-Wall", "-Wextra")
LINK: Final = ("-mexec-model=reactor", "-s", "-Wl,--gc-sections", f"-Wl,-z,stack-size={STACK_BYTES}")
COMPACT: Final = ("-O2", "--compress-relocations")
ZIG: Final = ("-target", "wasm32-freestanding", "-O", "ReleaseFast", "-fstrip", "-fno-entry", "-rdynamic")
FLAGS: Final = (TARGET, CXX, COMPILE, LINK, COMPACT, ZIG)


def version() -> str:
    # Imported here: each start of aici imports this module, and few builds a controller.
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import version as installed_version

    try:
        return f"ziglang-{installed_version('ziglang')}"
    except PackageNotFoundError:
        return "none"


def require() -> None:
    if importlib.util.find_spec("ziglang") is None:
        raise UnavailableError("ziglang is not installed", hint="pip install 'aici[build]'")


def has_cache() -> bool:
    """Whether a build ran here before. If not, the first build takes up to a minute longer."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("ZIG_GLOBAL_CACHE_DIR") or Path(base) / "zig").is_dir()


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """A C or C++ file and its object. `root`: the prefix removed from `__FILE__`."""

    source: Path
    out: Path
    root: Path
    includes: Sequence[Path]
    flags: Sequence[str] = ()


def compile(units: Sequence[Unit]) -> str:  # noqa: A001
    """Compile the units in parallel and return the warnings."""
    return "".join(run_all([_compile(unit) for unit in units]))


def _compile(unit: Unit) -> Command:
    driver = C_SUFFIXES[unit.source.suffix]
    language = CXX if driver == "c++" else ()
    folders = [f"-I{path}" for path in (*unit.includes, unit.source.parent)]
    flags = (*TARGET, *COMPILE, *language, f"-ffile-prefix-map={unit.root}=.", *folders, *unit.flags)
    wrong = f"{unit.source} does not compile"
    return command(wrong, driver, *flags, "-c", _as_path(unit.source), "-o", str(unit.out))


def preprocess(source: Path, includes: Sequence[Path], flags: Sequence[str]) -> str:
    """Return a preprocessed source. A single source only: given several, the driver forgets its own headers."""
    with tempfile.TemporaryDirectory(prefix="aici-cpp-") as name:
        out = Path(name) / "out.i"
        folders = [f"-I{path}" for path in includes]
        run(
            command(
                f"{source} cannot be preprocessed", "cc", *TARGET, "-E", *folders, *flags, str(source), "-o", str(out)
            )
        )
        return out.read_text("utf-8")


def link(objects: Sequence[Path], out: Path, flags: Sequence[str] = ()) -> str:
    """Link as C if possible: the SDK uses the C++ standard library as headers only, and building the library takes
    as long as building the C library. A controller that needs the library (std::string) is linked a second time."""
    try:
        return _link("cc", objects, out, flags)
    except ControllerError as error:
        if "std::__1::" not in error.message:
            raise
        return _link("c++", objects, out, flags)


def _link(driver: str, objects: Sequence[Path], out: Path, flags: Sequence[str]) -> str:
    """Link in two steps. The driver knows the parts of a module, but not the option for short encodings of calls and
    addresses, which saves a sixteenth of the module. So the driver only prints the linker command, which is then run
    with the option."""
    out = out.resolve()
    wrong = "the controller does not link"
    names = [str(path.resolve()) for path in objects]
    first = command(wrong, driver, *TARGET, *LINK, *flags, *names, "-o", str(out))
    said = run(replace(first, env={**os.environ, "ZIG_VERBOSE_LINK": "1"})).splitlines(keepends=True)
    how = next(line for line in said if line.startswith("wasm-ld "))
    options, _, inputs = how.strip().partition(f" -o {out} ")
    between = r"(?<=\.[oa]) (?=/)"  # the driver does not quote, and a folder may contain a space
    run(command(wrong, *options.split(" "), *COMPACT, "-o", str(out), *re.split(between, inputs)))
    # On first use the driver also prints how it builds the C library.
    return "".join(line for line in said if not line.startswith(("wasm-ld ", "ar ")))


def build_zig(root: Path, out: Path, *, binding: Path) -> str:
    """Build a controller in Zig: `root` may import `binding` as the module `aici`."""
    modules = ("--dep", "aici", f"-Mroot={root}", f"-Maici={binding}")
    flags = (*ZIG, "--stack", str(STACK_BYTES), f"-femit-bin={out}")
    return run(command(f"{root} does not compile", "build-exe", *flags, *modules))


def command(wrong: str, *arguments: str) -> Command:
    """Return a command of the toolchain; `wrong`: the error message if the command fails."""
    return Command(argv=[sys.executable, "-P", "-m", "ziglang", *arguments], wrong=wrong)


def _as_path(source: Path) -> str:
    """Return a path that cannot be mistaken for an option or a response file."""
    return f"./{source}" if str(source).startswith(("-", "@")) else str(source)
