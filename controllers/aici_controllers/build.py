"""Compiles a controller from C or C++ with the SDK. Needs `ziglang` (the extra `aici[build]`), nothing else.

Every guest is built with the same flags: zig keeps one compiled C library per set of flags (about 20 s, once), and a
build after that takes about a second. The guest is linked as C when it can be: the C++ standard library is
header-only as far as the SDK uses it, and building the rest of it would cost as much again. A controller that needs it
(std::string, std::unordered_map) is linked a second time, as C++.
"""

import hashlib
import importlib.util
import itertools
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

from aici_runtime.errors import UnavailableError, UsageError

TARGET: Final = ("-target", "wasm32-wasi", "-O3", "-g0")
CXX: Final = ("-std=c++20", "-fno-exceptions", "-fno-rtti", "-fno-threadsafe-statics")
COMPILE: Final = ("-ffunction-sections", "-fdata-sections", "-Wall", "-Wextra")
LINK: Final = ("-mexec-model=reactor", "-s", "-Wl,--gc-sections", "-Wl,-z,stack-size=262144")
_SUFFIXES: Final = {".c": "cc", ".cpp": "c++", ".cc": "c++", ".cxx": "c++"}


def sdk_dir() -> Path:
    """The folder of the SDK: `include/` and `src/`."""
    return Path(__file__).resolve().parent.parent / "sdk"


def sdk_sources() -> list[Path]:
    return sorted((sdk_dir() / "src").rglob("*.cpp"))


def build_guest(sources: Sequence[Path], out: Path) -> None:
    """Compiles `sources` (.c or .cpp) with the SDK into the module `out`, mode 0644, replaced only on success.

    UnavailableError when there is no toolchain; UsageError with the compiler's output when the sources do not compile.
    """
    build_guests({out: sources})


def build_guests(guests: Mapping[Path, Sequence[Path]]) -> None:
    """`build_guest` for each module and its sources; the SDK is compiled once."""
    if importlib.util.find_spec("ziglang") is None:
        raise UnavailableError("ziglang is not installed", hint="pip install 'aici[build]'")
    for source in itertools.chain.from_iterable(guests.values()):
        if source.suffix not in _SUFFIXES:
            raise UsageError(f"{source} is not C or C++", hint="name it .c or .cpp")
        if not source.is_file():
            raise UsageError(f"{source} does not exist")
    with tempfile.TemporaryDirectory(prefix="aici-sdk-") as sdk_folder:
        sdk = _compile_all(sdk_sources(), Path(sdk_folder))
        for out, sources in guests.items():
            out.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(prefix="aici-build-", dir=out.parent) as folder:
                module = _link([*_compile_all(sources, Path(folder)), *sdk], Path(folder) / "guest.wasm")
                module.chmod(0o644)
                module.replace(out)


def _compile_all(sources: Sequence[Path], folder: Path) -> list[Path]:
    with ThreadPoolExecutor(min(4, os.cpu_count() or 1)) as pool:
        jobs = [
            pool.submit(_compile, source.resolve(), folder / f"{number}.o") for number, source in enumerate(sources)
        ]
        return [job.result() for job in jobs]


def build_shipped(sources: Path, out: Path) -> list[Path]:
    """Builds each folder of `sources` (one guest, its name, .c and .cpp files) into `out`/NAME.wasm.

    A guest is left as it is while NAME.hash beside it says that neither its sources, nor the SDK, nor the toolchain
    changed. Returns all modules, sorted.
    """
    modules: list[Path] = []
    stale: dict[Path, list[Path]] = {}
    notes: dict[Path, str] = {}
    common = _digest([Path(__file__), *sdk_sources(), *(sdk_dir() / "include").rglob("*.h*")])
    for folder in sorted(path for path in sources.iterdir() if path.is_dir()):
        files = sorted(path for path in folder.rglob("*") if path.suffix in _SUFFIXES)
        if not files:
            continue
        module, note = out / f"{folder.name}.wasm", out / f"{folder.name}.hash"
        inputs = _digest([path for path in folder.rglob("*") if path.suffix in {*_SUFFIXES, ".h", ".hpp"}])
        digest = f"{common} {inputs} {_toolchain()}\n"
        if not module.exists() or not note.exists() or note.read_text() != digest:
            note.unlink(missing_ok=True)
            stale[module], notes[note] = files, digest
        modules.append(module)
    if stale:
        build_guests(stale)
    for note, digest in notes.items():
        note.write_text(digest)
    return modules


def _digest(paths: Sequence[Path]) -> str:
    digest = hashlib.sha256()
    for path in sorted(paths):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


def _toolchain() -> str:
    try:
        return f"ziglang-{version('ziglang')}"
    except PackageNotFoundError:
        return "none"


def _compile(source: Path, out: Path) -> Path:
    driver = _SUFFIXES[source.suffix]
    flags = [*TARGET, *COMPILE, *(CXX if driver == "c++" else ()), f"-I{sdk_dir() / 'include'}", f"-I{source.parent}"]
    result = _zig(driver, *flags, "-c", str(source), "-o", str(out))
    if result.returncode:
        raise UsageError(f"{source} does not compile\n{result.stderr.strip()}")
    return out


def _link(objects: Sequence[Path], out: Path) -> Path:
    names = [str(path) for path in objects]
    result = _zig("cc", *TARGET, *LINK, *names, "-o", str(out))
    if result.returncode and "std::__1::" in result.stderr:
        result = _zig("c++", *TARGET, *LINK, *names, "-o", str(out))
    if result.returncode:
        raise UsageError(f"the controller does not link\n{result.stderr.strip()}")
    return out


def _zig(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ziglang", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)


if __name__ == "__main__":
    for built in build_shipped(sdk_dir().parent / "guests", Path(__file__).resolve().parent / "guests"):
        sys.stdout.write(f"{built} {built.stat().st_size} bytes\n")
