"""`guest.toml` in the folder of a guest: what the guest is built from besides its own sources.

third_party = "NAME"      a source of third_party.toml
sources = ["dir/*.c"]     the files of the source to compile
include = ["dir"]         folders of the source with headers, also for the guest's own sources
port = "dir"              the guest's folder with headers required by the source (default: the guest's folder)
headers = "micropython"   generate headers first, with this module of aici_controllers
flags = ["-Os"]           flags for third-party sources only
common_flags = ["-g"]     flags for third-party sources and the guest's own
stack_bytes = 1048576     size of the guest's stack
link = ["-Wl,..."]        further linker flags
"""

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from aici_base.errors import UsageError
from aici_base.native_library import digest
from aici_controllers import zig
from aici_controllers.object_cache import Part
from aici_controllers.third_party import Source, known_sources

NAME = "guest.toml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    third_party: str = ""
    sources: Sequence[str] = ()
    include: Sequence[str] = ()
    port: str = ""
    headers: str = ""
    flags: Sequence[str] = ()
    common_flags: Sequence[str] = ()
    stack_bytes: int = zig.STACK_BYTES
    link: Sequence[str] = ()

    @property
    def source(self) -> Source | None:
        return known_sources()[self.third_party] if self.third_party else None

    @property
    def link_flags(self) -> list[str]:
        return [f"-Wl,-z,stack-size={self.stack_bytes}", *self.link]


def read_recipe(folder: Path) -> Recipe:
    """Return the recipe in a folder; the default recipe if the folder has no guest.toml."""
    path = folder / NAME
    if not path.exists():
        return Recipe()
    table = tomllib.loads(path.read_text("utf-8"))
    known = [field.name for field in fields(Recipe)]
    if wrong := [key for key in table if key not in known]:
        raise UsageError(f"{path}: {wrong[0]} is not known", hint=f"known: {', '.join(known)}")
    if table.get("third_party", "") not in ("", *known_sources()):
        raise UsageError(f"{path}: third_party.toml has no {table['third_party']}")
    return Recipe(**table)


def third_party_parts(recipe: Recipe, tree: Path, folder: Path, made: Path) -> list[Part]:
    """Return the third-party sources in `tree` to compile for the guest in `folder`, including generated sources in
    `made`. The sources may include headers of the guest."""
    source = recipe.source
    headers = [digest(list(root.rglob("*.h")), root) for root in (folder / recipe.port, made)]
    context = " ".join([source.sha256 if source else "", *headers])
    includes = [*include_folders(recipe, tree, made), folder / recipe.port]
    flags = ["-w", *recipe.common_flags, *recipe.flags]  # warnings in third-party sources are not ours to fix
    paths = source_files(recipe, tree)
    return [Part(source=path, root=tree, includes=includes, context=context, flags=flags) for path in paths]


def source_files(recipe: Recipe, tree: Path) -> list[Path]:
    return sorted({path for pattern in recipe.sources for path in tree.glob(pattern)})


def include_folders(recipe: Recipe, tree: Path, made: Path) -> list[Path]:
    return [made, *(tree / name for name in recipe.include)]
