"""Compiles controllers from C or C++ with the SDK. Needs `ziglang` (the extra `aici[build]`), nothing else."""

import itertools
import re
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from aici_controllers import zig
from aici_controllers.sdk import digest, sdk_dir, sdk_headers, sdk_objects, sdk_sources
from aici_runtime.cache import write_atomically
from aici_runtime.errors import UsageError

__all__ = ["build_guest", "build_guests", "build_shipped", "sdk_dir", "sdk_sources"]


def build_guest(sources: Sequence[Path], out: Path, *, root: Path | None = None) -> str:
    """Compiles `sources` (.c or .cpp) with the SDK into the module `out`, mode 0644, replaced only on success; returns
    the compiler's warnings. `root` is the folder that the sources are named from; it does not reach the output.

    UnavailableError when there is no toolchain; ControllerError with the compiler's output when it refuses the sources.
    """
    return build_guests({out: sources}, root=root)


def build_guests(guests: Mapping[Path, Sequence[Path]], *, root: Path | None = None) -> str:
    """`build_guest` for each module and its sources."""
    zig.require()
    for source in itertools.chain.from_iterable(guests.values()):
        if source.suffix not in zig.C_SUFFIXES:
            raise UsageError(f"{source} is not C or C++", hint="name it .c or .cpp")
        if not source.is_file():
            raise UsageError(f"{source} does not exist")
    warnings = ""
    with tempfile.TemporaryDirectory(prefix="aici-sdk-") as sdk_folder:
        sdk = sdk_objects(sdk_sources(), Path(sdk_folder))
        for out, sources in guests.items():
            with tempfile.TemporaryDirectory(prefix="aici-build-") as name:
                units = [_unit(source, number, Path(name), root) for number, source in enumerate(sources)]
                module = Path(name) / "guest.wasm"
                warnings += zig.compile(units) + zig.link([*(unit.out for unit in units), *sdk], module)
                write_atomically(out, module.read_bytes(), hint="name another folder")
                out.chmod(0o644)
    return warnings


def _unit(source: Path, number: int, folder: Path, root: Path | None) -> zig.Unit:
    """The object is called after the source, since the linker names it. Assertions of controllers are on: what they
    catch ends the guest with a message, instead of going on with what nobody thought of."""
    out = folder / f"{number}-{re.sub(r'[^A-Za-z0-9_.]', '_', source.name)}.o"
    include = sdk_dir() / "include"
    return zig.Unit(source=source, out=out, root=root or source.parent, include=include, flags=["-UNDEBUG"])


def build_shipped(sources: Path, out: Path) -> list[Path]:
    """Builds each folder of `sources` (one guest, its name, .c and .cpp files) into `out`/NAME.wasm.

    A guest is left as it is while NAME.hash beside it says that neither its sources, nor the SDK, nor the toolchain
    changed. Returns all modules, sorted.
    """
    modules: list[Path] = []
    stale: dict[Path, list[Path]] = {}
    notes: dict[Path, str] = {}
    common = f"{digest([*sdk_sources(), *sdk_headers()], sdk_dir())[:16]} {zig.version()} {zig.FLAGS}"
    for folder in sorted(path for path in sources.iterdir() if path.is_dir()):
        files = sorted(path for path in folder.rglob("*") if path.suffix in zig.C_SUFFIXES)
        if not files:
            continue
        module, note = out / f"{folder.name}.wasm", out / f"{folder.name}.hash"
        inputs = [path for path in folder.rglob("*") if path.suffix in {*zig.C_SUFFIXES, ".h", ".hpp"}]
        state = f"{common} {digest(inputs, folder)[:16]}\n"
        if not module.exists() or not note.exists() or note.read_text() != state:
            note.unlink(missing_ok=True)
            stale[module], notes[note] = files, state
        modules.append(module)
    if stale:
        sys.stderr.write(build_guests(stale, root=sources))
    for note, state in notes.items():
        note.write_text(state)
    return modules


if __name__ == "__main__":
    for built in build_shipped(sdk_dir().parent / "guests", Path(__file__).resolve().parent / "guests"):
        sys.stdout.write(f"{built} {built.stat().st_size} bytes\n")
