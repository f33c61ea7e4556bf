"""Locate the SDK and its compiled objects. A wheel carries the objects, since compiling takes a minute or two; a
checkout compiles into the cache."""

import re
import shutil
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Final

from aici_base.native_library import digest
from aici_controllers.object_cache import Part, are_compiled, included, objects_of

RUNS_ONCE: Final = re.compile(
    r"/src/(schema/|json_|choices|substring|suffix_array"
    r"|grammar/(?!lexer|masks|recognizer|scanner\.|stacks)"
    r"|regex/(anchored|char_class|escape|groups|look_ahead|parser|problem|unicode))"
)
"""Sources used only when a constraint is made: compiled for size. A large schema then takes 8 % longer, and the
guest of schemas is 8 % smaller."""
_SHIPPED: Final = Path(__file__).resolve().parent / "objects"


@cache
def sdk_dir() -> Path:
    """Return the folder with `include/`, `src/` and `zig/`: beside this package in a checkout, inside it in a wheel."""
    here = Path(__file__).resolve().parent
    return next((path for path in (here.parent / "sdk", here / "sdk") if path.is_dir()), here / "sdk")


def sdk_sources() -> list[Path]:
    return sorted((sdk_dir() / "src").rglob("*.cpp"))


def sdk_headers() -> list[Path]:
    return sorted([*(sdk_dir() / "include").rglob("*.h*"), *(sdk_dir() / "src").rglob("*.hpp")])


def sdk_objects(sources: Sequence[Path], folder: Path, *, shipped: Path = _SHIPPED) -> list[Path]:
    """Return the sources of the SDK as object files; see `objects_of`."""
    return objects_of(_parts(sources), folder, shipped=shipped)


def is_sdk_compiled() -> bool:
    """Whether the objects are compiled. If not, a build takes a minute or two longer."""
    return are_compiled(_parts(sdk_sources()), shipped=_SHIPPED)


def ship_objects() -> None:
    """Put the objects of the SDK into the folder shipped by a wheel."""
    _SHIPPED.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="aici-sdk-") as folder:
        wanted = {path.name: path for path in sdk_objects(sdk_sources(), Path(folder))}
        for old in _SHIPPED.glob("*.o"):
            if old.name not in wanted:
                old.unlink()
        for name, path in wanted.items():
            if path.parent != _SHIPPED:
                shutil.copyfile(path, _SHIPPED / name)


def _parts(sources: Sequence[Path]) -> list[Part]:
    root = sdk_dir()
    includes = [root / "include"]
    return [
        Part(
            source=path,
            root=root,
            includes=includes,
            context=digest(included(path, includes), root),
            flags=["-Os"] if RUNS_ONCE.search(path.as_posix()) else [],
        )
        for path in sources
    ]
