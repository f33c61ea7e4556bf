"""Build a user's controller project, a file or a folder, into a module: `aici ctrl build`."""

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from aici_base.cache_files import write_atomically
from aici_base.errors import ControllerError, NotFoundError, UsageError
from aici_controllers import zig
from aici_controllers.assemblyscript import ENTRY, build_assemblyscript
from aici_controllers.build import build_guest
from aici_controllers.rust import build_rust
from aici_controllers.sdk import sdk_dir
from aici_controllers.store import README_SECTION
from aici_runtime.guests.abi_check import check_abi
from aici_runtime.modules.custom_sections import with_custom_section
from aici_runtime.modules.wasm_bytes import check_wasm

_SKIPPED: Final = {"node_modules", "target", "build", "dist", "tests"}


@dataclass(frozen=True, slots=True)
class Built:
    """A built controller. `warnings`: the compiler's warnings, verbatim."""

    path: Path
    language: str
    size_bytes: int
    warnings: str


@dataclass(frozen=True, slots=True)
class Project:
    """A project: its language and build function. `name`: the default name of the module. `readme`: None if the project
    has none, or is a single file."""

    name: str
    folder: Path
    language: str
    build: Callable[[Path], str]
    readme: Path | None = None


def find_project(path: Path) -> Project:
    """Find the language of a file or folder. Raise UsageError if there is no known language, or more than one."""
    if not path.exists():
        raise NotFoundError(f"{path} does not exist")
    folder, name = (path, path.resolve().name) if path.is_dir() else (path.parent, path.stem)
    sources = _sources(path) if path.is_dir() else [path]
    kinds: dict[str, Callable[[Path], str]] = {}
    if path.name == "Cargo.toml" or (path.is_dir() and (path / "Cargo.toml").exists()):
        kinds["Rust"] = lambda out: build_rust(folder, out)
    if path.is_dir() and (path / ENTRY).exists():
        kinds["AssemblyScript"] = lambda out: build_assemblyscript(folder, out)
    if c_sources := [source for source in sources if source.suffix in zig.C_SUFFIXES]:
        language = "C" if all(source.suffix == ".c" for source in c_sources) else "C++"
        kinds[language] = lambda out: build_guest(c_sources, out, root=folder)
    if zig_sources := [source for source in sources if source.suffix == ".zig"]:
        root = _zig_root(path, zig_sources)
        kinds["Zig"] = lambda out: _build_zig(root, out)
    if not kinds:
        raise UsageError(
            f"there is nothing to build in {path}",
            hint=f"C, C++ or Zig sources, a Cargo.toml, or {ENTRY}; `aici ctrl new` writes a project to start from",
        )
    if len(kinds) > 1:
        raise UsageError(
            f"{path} holds more than one language: {', '.join(kinds)}", hint="name the file, or use separate folders"
        )
    ((language, build),) = kinds.items()
    readme = folder / "README.md" if path.is_dir() and (folder / "README.md").is_file() else None
    return Project(name if path.name != "Cargo.toml" else folder.resolve().name, folder, language, build, readme)


def build_project(project: Project, out: Path) -> Built:
    """Build into `out`. An existing file is replaced only if it is a module, and only by a controller. Raise
    ControllerError with the reasons if the result is not a controller."""
    _check_out(out)
    with tempfile.TemporaryDirectory(prefix="aici-build-") as name:
        module = Path(name) / "controller.wasm"
        warnings = project.build(module)
        wasm = module.read_bytes()
        if problems := check_abi(wasm):
            raise ControllerError(
                "\n  ".join(["this is not a controller:", *problems]), hint="aici.h describes the interface"
            )
        if project.readme is not None:
            wasm = with_custom_section(wasm, README_SECTION, project.readme.read_bytes())
    write_atomically(out, wasm, hint="--out names another place")
    return Built(out, project.language, len(wasm), warnings)


def _check_out(out: Path) -> None:
    """Refuse to overwrite anything but a module: a mistyped --out must not destroy a source file or a device."""
    if out.exists() and not out.is_file():
        what = "a folder" if out.is_dir() else "no file"
        raise UsageError(f"{out} is {what}", hint="--out is the module itself: NAME.wasm")
    if out.is_file() and (content := out.read_bytes()):
        check_wasm(content, f"the existing file {out}", hint="nothing was replaced; name another file")


def _sources(folder: Path) -> list[Path]:
    def is_ours(path: Path) -> bool:
        parts = path.relative_to(folder).parts
        return not any(part.startswith(".") or part in _SKIPPED for part in parts[:-1])

    return sorted(path for path in folder.rglob("*") if path.is_file() and is_ours(path))


def _zig_root(path: Path, sources: list[Path]) -> Path:
    if len(sources) == 1:
        return sources[0]
    for name in ("main.zig", "src/main.zig"):
        if path / name in sources:
            return path / name
    raise UsageError(f"{path} holds several Zig files and no main.zig", hint="name the file that exports the callbacks")


def _build_zig(root: Path, out: Path) -> str:
    zig.require()
    return zig.build_zig(root, out, binding=sdk_dir() / "zig" / "aici.zig")
