"""The bundled toolchain (`ziglang`): C and C++ to objects, objects to a controller, Zig to a controller.

All C and C++ is compiled with the same flags: zig keeps one compiled C library per set of flags (about 20 s, once), and
a build after that takes about a second. What a file is called and where it lies never reaches the output.
"""

import importlib.util
import os
import re
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed_version
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
    try:
        return f"ziglang-{installed_version('ziglang')}"
    except PackageNotFoundError:
        return "none"


def require() -> None:
    if importlib.util.find_spec("ziglang") is None:
        raise UnavailableError("ziglang is not installed", hint="pip install 'aici[build]'")


def has_cache() -> bool:
    """Whether something was compiled here before. If not, the first build takes up to a minute longer."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("ZIG_GLOBAL_CACHE_DIR") or Path(base) / "zig").is_dir()


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """A C or C++ file and the object that it becomes. `root` is what `__FILE__` is written without."""

    source: Path
    out: Path
    root: Path
    includes: Sequence[Path]
    flags: Sequence[str] = ()


def compile(units: Sequence[Unit]) -> str:  # noqa: A001
    """Returns the warnings."""
    return "".join(run_all([_compile(unit) for unit in units]))


def _compile(unit: Unit) -> Command:
    driver = C_SUFFIXES[unit.source.suffix]
    language = CXX if driver == "c++" else ()
    folders = [f"-I{path}" for path in (*unit.includes, unit.source.parent)]
    flags = (*TARGET, *COMPILE, *language, f"-ffile-prefix-map={unit.root}=.", *folders, *unit.flags)
    wrong = f"{unit.source} does not compile"
    return command(wrong, driver, *flags, "-c", _as_path(unit.source), "-o", str(unit.out))


def preprocess(source: Path, includes: Sequence[Path], flags: Sequence[str]) -> str:
    """One source: of several, the driver would forget its own headers."""
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
    """As C when that is enough: the C++ standard library is header-only as far as the SDK uses it, and building the
    rest of it takes as long as the C library again. A controller that needs it (std::string) is linked a second time.
    """
    try:
        return _link("cc", objects, out, flags)
    except ControllerError as error:
        if "std::__1::" not in error.message:
            raise
        return _link("c++", objects, out, flags)


def _link(driver: str, objects: Sequence[Path], out: Path, flags: Sequence[str]) -> str:
    """Twice: the driver knows what belongs to a module, but not the option by which calls and addresses take the bytes
    that they need instead of five each, which is a sixteenth of a module. So it is asked to say how it links."""
    out = out.resolve()
    wrong = "the controller does not link"
    names = [str(path.resolve()) for path in objects]
    first = command(wrong, driver, *TARGET, *LINK, *flags, *names, "-o", str(out))
    said = run(replace(first, env={**os.environ, "ZIG_VERBOSE_LINK": "1"})).splitlines(keepends=True)
    how = next(line for line in said if line.startswith("wasm-ld "))
    options, _, inputs = how.strip().partition(f" -o {out} ")
    between = r"(?<=\.[oa]) (?=/)"  # the driver quotes nothing, and a folder may have a space in its name
    run(command(wrong, *options.split(" "), *COMPACT, "-o", str(out), *re.split(between, inputs)))
    # The first time, it also says how it makes the C library.
    return "".join(line for line in said if not line.startswith(("wasm-ld ", "ar ")))


def build_zig(root: Path, out: Path, *, binding: Path) -> str:
    """A controller in Zig: `root` may import the module `aici`, which is `binding`."""
    modules = ("--dep", "aici", f"-Mroot={root}", f"-Maici={binding}")
    flags = (*ZIG, "--stack", str(STACK_BYTES), f"-femit-bin={out}")
    return run(command(f"{root} does not compile", "build-exe", *flags, *modules))


def command(wrong: str, *arguments: str) -> Command:
    """Of the toolchain; `wrong` is what is so when it fails."""
    return Command(argv=[sys.executable, "-P", "-m", "ziglang", *arguments], wrong=wrong)


def _as_path(source: Path) -> str:
    """What neither begins like an option nor like a file of options."""
    return f"./{source}" if str(source).startswith(("-", "@")) else str(source)
