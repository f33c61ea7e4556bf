"""`guest.toml` in the folder of a guest: what it is built from beside its own sources.

third_party = "NAME"      a source of third_party.toml
sources = ["dir/*.c"]     what of it is compiled
include = ["dir"]         folders of it that headers are found in, by the guest's sources too
port = "dir"              folder of the guest with the headers that these sources want of who uses them; else all of it
headers = "micropython"   headers are made of both first, by this module of aici_controllers
flags = ["-Os"]           for the sources of others only
common_flags = ["-g"]     for these and for the guest's own
stack_bytes = 1048576     of the guest
link = ["-Wl,..."]        more flags for the linker
"""

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from aici_base.errors import UsageError
from aici_controllers import zig
from aici_controllers.object_cache import Part, digest
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
    """An empty one where there is no file."""
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
    """The sources of others in `tree`, to be compiled for the guest in `folder`, whose headers they may include, and
    those that were made for it in `made`."""
    source = recipe.source
    headers = [digest(list(root.rglob("*.h")), root) for root in (folder / recipe.port, made)]
    context = " ".join([source.sha256 if source else "", *headers])
    includes = [*include_folders(recipe, tree, made), folder / recipe.port]
    flags = ["-w", *recipe.common_flags, *recipe.flags]  # their warnings are theirs
    paths = source_files(recipe, tree)
    return [Part(source=path, root=tree, includes=includes, context=context, flags=flags) for path in paths]


def source_files(recipe: Recipe, tree: Path) -> list[Path]:
    return sorted({path for pattern in recipe.sources for path in tree.glob(pattern)})


def include_folders(recipe: Recipe, tree: Path, made: Path) -> list[Path]:
    return [made, *(tree / name for name in recipe.include)]
