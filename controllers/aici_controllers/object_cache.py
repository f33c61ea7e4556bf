"""A cache of object files compiled from the SDK and third-party sources: one per content, flags and toolchain."""

import contextlib
import hashlib
import os
import re
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from aici_base.cache_files import default_cache_dir, mark_used, remove_unused
from aici_base.errors import ControllerError
from aici_base.native_library import digest
from aici_controllers import zig

_KEPT_DAYS: Final = 14
_INCLUDE: Final = re.compile(rb'^[ \t]*#[ \t]*include[ \t]*"([^"\n]+)"', re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A source, named relative to `root`. `context`: everything else that the object depends on besides flags, such
    as headers."""

    source: Path
    root: Path
    includes: Sequence[Path]
    context: str
    flags: Sequence[str] = ()


def included(source: Path, folders: Sequence[Path]) -> list[Path]:
    """Return the files that `source` includes in quotes, and those that they include, and so on. Conditions count as
    true. Files in angle brackets belong to the toolchain."""
    found: set[Path] = set()
    queue = [source]
    while queue:
        path = queue.pop()
        for name in _INCLUDE.findall(path.read_bytes()):
            places = (Path(os.path.normpath(folder / os.fsdecode(name))) for folder in (path.parent, *folders))
            header = next((place for place in places if place.is_file()), None)
            if header is not None and header not in found:
                found.add(header)
                queue.append(header)
    return sorted(found)


def objects_of(parts: Sequence[Part], folder: Path, *, shipped: Path | None = None) -> list[Path]:
    """Return the object files of `parts`, in order. A missing object is compiled into the cache, or into `folder` if
    the cache is read-only; then `folder` must outlive the use of the objects. `shipped`: a folder with objects from
    the wheel."""
    began = time.time()
    store = _store()
    with contextlib.suppress(OSError):
        store.mkdir(parents=True, exist_ok=True)
        remove_unused(store, "*.o", num_days=_KEPT_DAYS)
    fresh = store if os.access(store, os.W_OK) and store.is_dir() else folder
    places = (store, *([shipped] if shipped else []))
    known = {path.name: path for place in places for path in place.glob("*.o")}
    found = [known.get(name, fresh / name) for name in map(_name, parts)]
    missing = {}
    for part, path in zip(parts, found, strict=True):
        if path.exists():
            mark_used(path)
        else:
            missing[path] = part
    if missing:
        _compile(missing, fresh, began)
    return found


def are_compiled(parts: Sequence[Part], *, shipped: Path) -> bool:
    return all((shipped / name).exists() or (_store() / name).exists() for name in map(_name, parts))


def _store() -> Path:
    return default_cache_dir() / "sdk"


def _name(part: Part) -> str:
    key = " ".join([zig.version(), str(zig.FLAGS), *part.flags, part.context, digest([part.source], part.root)])
    return f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.o"


def _compile(missing: Mapping[Path, Part], place: Path, began: float) -> None:
    """Compile into a temporary folder first: another process may be compiling the same object.

    Raises ControllerError if a file changed after `began`: the object would be kept under the name of other contents.
    """
    with tempfile.TemporaryDirectory(prefix="compile-", dir=place) as folder:
        units = [
            zig.Unit(source=p.source, out=Path(folder) / path.name, root=p.root, includes=p.includes, flags=p.flags)
            for path, p in missing.items()
        ]
        zig.compile(units)
        for path in _files(missing.values()):
            if path.stat().st_mtime > began:
                raise ControllerError(f"{path} changed while it was compiled", hint="build again")
        for path in missing:
            (Path(folder) / path.name).replace(path)


def _files(parts: Iterable[Part]) -> Iterator[Path]:
    """Yield the sources, and the headers below their roots."""
    for part in parts:
        yield part.source
    for folder in {folder for part in parts for folder in part.includes if folder.is_relative_to(part.root)}:
        yield from folder.rglob("*.h*")
