"""Compile controllers from C or C++ with the SDK. Needs only `ziglang` (the extra `aici[build]`)."""

import re
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from aici_base.cache_files import write_atomically
from aici_base.errors import UnavailableError, UsageError
from aici_base.native_library import digest
from aici_controllers import micropython, zig
from aici_controllers.guest_toml import NAME, Recipe, include_folders, read_recipe, source_files, third_party_parts
from aici_controllers.object_cache import Part, objects_of
from aici_controllers.sdk import RUNS_ONCE, sdk_dir, sdk_headers, sdk_objects, sdk_sources
from aici_controllers.third_party import notice, source_tree

__all__ = ["build_guest", "build_shipped", "sdk_dir", "sdk_sources"]

_INPUTS: Final = {*zig.C_SUFFIXES, ".h", ".hpp", ".js", ".py"}
_HEADERS: Final = {"micropython": micropython.make_headers}


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestSources:
    """The sources of the module `out`. Sources are named relative to `root`; `parts` are third-party sources,
    `includes` the folders with their headers."""

    out: Path
    sources: Sequence[Path]
    root: Path | None = None
    parts: Sequence[Part] = ()
    includes: Sequence[Path] = ()
    flags: Sequence[str] = ()
    link_flags: Sequence[str] = ()


def build_guest(sources: Sequence[Path], out: Path, *, root: Path | None = None) -> str:
    """Compile `sources` (.c or .cpp) with the SDK into the module `out`; return the compiler's warnings.

    `out` has mode 0644 and is replaced only on success. The bytes do not depend on `root`.

    Raise UnavailableError if the toolchain is missing, ControllerError with the compiler's output if a source is
    refused.
    """
    return _build([GuestSources(out=out, sources=sources, root=root)])


def _build(guests: Sequence[GuestSources]) -> str:
    zig.require()
    for source in (source for guest in guests for source in guest.sources):
        if source.suffix not in zig.C_SUFFIXES:
            raise UsageError(f"{source} is not C or C++", hint="sources end in .c or .cpp")
        if not source.is_file():
            raise UsageError(f"{source} does not exist")
    warnings = ""
    with tempfile.TemporaryDirectory(prefix="aici-sdk-") as kept:
        sdk = sdk_objects(sdk_sources(), Path(kept))
        for guest in guests:
            with tempfile.TemporaryDirectory(prefix="aici-build-") as name:
                units = [_unit(guest, number, Path(name)) for number in range(len(guest.sources))]
                warnings += zig.compile(units)
                objects = [*(unit.out for unit in units), *objects_of(guest.parts, Path(kept)), *sdk]
                module = Path(name) / "guest.wasm"
                warnings += zig.link(objects, module, guest.link_flags)
                write_atomically(guest.out, module.read_bytes(), hint="name another folder")
                guest.out.chmod(0o644)
    return warnings


def _unit(guest: GuestSources, number: int, folder: Path) -> zig.Unit:
    """Return the unit to compile. The object is named after the source because the linker records the name.
    Assertions stay on in controllers: a failed assertion ends the guest with a message."""
    source = guest.sources[number]
    out = folder / f"{number}-{re.sub(r'[^A-Za-z0-9_.]', '_', source.name)}.o"
    theirs = [f"-isystem{path}" for path in guest.includes]  # third-party headers do not pass our warnings
    includes = [sdk_dir() / "include"]
    flags = ["-UNDEBUG", *theirs, *guest.flags]
    return zig.Unit(source=source, out=out, root=guest.root or source.parent, includes=includes, flags=flags)


def build_shipped(sources: Path, out: Path) -> list[Path]:
    """Build every folder of `sources` into `out`/NAME.wasm: one guest with .c and .cpp files and perhaps a guest.toml.

    A guest is not rebuilt while NAME.hash beside the module matches its sources, the SDK and the toolchain. A guest is
    skipped, with a message on stderr, if a third-party source is unavailable. Return all modules, sorted.
    """
    with tempfile.TemporaryDirectory(prefix="aici-made-") as made:
        return _build_stale(sources, out, Path(made))


def _build_stale(sources: Path, out: Path, made: Path) -> list[Path]:
    modules: list[Path] = []
    stale: list[GuestSources] = []
    notes: dict[Path, str] = {}
    common = (
        f"{digest([*sdk_sources(), *sdk_headers()], sdk_dir())[:16]} {zig.version()} {zig.FLAGS} {RUNS_ONCE.pattern}"
    )
    for folder in sorted(path for path in sources.iterdir() if path.is_dir()):
        files = sorted(path for path in folder.rglob("*") if path.suffix in zig.C_SUFFIXES)
        if not files:
            continue
        recipe = read_recipe(folder)
        module, note = out / f"{folder.name}.wasm", out / f"{folder.name}.hash"
        inputs = [path for path in folder.rglob("*") if path.suffix in _INPUTS or path.name == NAME]
        pin = f" {recipe.source.sha256[:16]}" if recipe.source else ""
        state = f"{common} {digest(inputs, folder)[:16]}{pin}\n"
        if not module.exists() or not note.exists() or note.read_text() != state:
            note.unlink(missing_ok=True)
            try:
                stale.append(_guest(folder, files, module, recipe, made / folder.name))
            except UnavailableError as error:
                module.unlink(missing_ok=True)  # the module no longer matches its sources
                hint = f" ({error.hint})" if error.hint else ""
                sys.stderr.write(f"{folder.name} is not built: {error.message}{hint}\n")
                continue
            notes[note] = state
        modules.append(module)
    if stale:
        sys.stderr.write(_build(stale))
    for note, state in notes.items():
        note.write_text(state)
    return modules


def _guest(folder: Path, files: Sequence[Path], module: Path, recipe: Recipe, made: Path) -> GuestSources:
    """Fetch the third-party sources of a guest and write their notices beside the module. Generated headers go into
    `made`."""
    if recipe.source is None:
        return GuestSources(out=module, sources=files, root=folder.parent, link_flags=recipe.link_flags)
    tree = source_tree(recipe.source)
    own = folder / "NOTICE"
    notices = notice(recipe.source, tree) + ("\n" + own.read_text("utf-8") if own.exists() else "")
    write_atomically(module.with_suffix(".NOTICE"), notices.encode(), hint="name another folder")
    includes = [*include_folders(recipe, tree, made), folder / recipe.port]
    if recipe.headers:
        sources = [*source_files(recipe, tree), *(path for path in files if path.suffix == ".c")]
        _HEADERS[recipe.headers](tree, sources, includes, [*recipe.common_flags, *recipe.flags], made)
    return GuestSources(
        out=module,
        sources=files,
        root=folder.parent,
        parts=third_party_parts(recipe, tree, folder, made),
        includes=includes,
        flags=recipe.common_flags,
        link_flags=recipe.link_flags,
    )


if __name__ == "__main__":
    for built in build_shipped(sdk_dir().parent / "guests", Path(__file__).resolve().parent / "guests"):
        sys.stdout.write(f"{built} {built.stat().st_size} bytes\n")
