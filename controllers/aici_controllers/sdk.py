"""Where the SDK is, and its compiled form: each source is compiled once per content, flags and toolchain.

A wheel carries the objects, since compiling them takes a minute or two; a checkout compiles them into the cache.
"""

import contextlib
import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Final

from aici_controllers import zig
from aici_runtime.cache import default_cache_dir

_SHIPPED: Final = Path(__file__).resolve().parent / "objects"
_KEEP_S: Final = 14 * 24 * 3600


@cache
def sdk_dir() -> Path:
    """The folder with `include/`, `src/` and `zig/`: beside this package in a checkout, inside it in a wheel."""
    here = Path(__file__).resolve().parent
    return next((path for path in (here.parent / "sdk", here / "sdk") if path.is_dir()), here / "sdk")


def sdk_sources() -> list[Path]:
    return sorted((sdk_dir() / "src").rglob("*.cpp"))


def sdk_headers() -> list[Path]:
    return sorted([*(sdk_dir() / "include").rglob("*.h*"), *(sdk_dir() / "src").rglob("*.hpp")])


def digest(paths: Sequence[Path], root: Path) -> str:
    """Of the contents, and of the names below `root`."""
    total = hashlib.sha256()
    for path in sorted(paths):
        content = path.read_bytes()
        total.update(f"{path.relative_to(root)} {len(content)}\n".encode() + content)
    return total.hexdigest()


def sdk_objects(sources: Sequence[Path], folder: Path, *, shipped: Path = _SHIPPED) -> list[Path]:
    """Sources of the SDK as object files, in their order. Those that are neither in `shipped` nor in the cache are
    compiled and kept in the cache; where the cache cannot be written, into `folder`, which must outlive their use."""
    store = _store()
    with contextlib.suppress(OSError):
        store.mkdir(parents=True, exist_ok=True)
        _forget_old(store)
    fresh = store if os.access(store, os.W_OK) and store.is_dir() else folder
    known = {path.name: path for place in (store, shipped) for path in place.glob("*.o")}
    objects = [known.get(name, fresh / name) for name in _names(sources)]
    missing = {}
    for source, path in zip(sources, objects, strict=True):
        if path.exists():
            with contextlib.suppress(OSError):  # an installation that only its owner may touch
                os.utime(path)
        else:
            missing[source] = path
    if missing:
        _compile(missing, fresh)
    return objects


def is_sdk_compiled() -> bool:
    """Whether a build will find it. If not, it takes a minute or two longer."""
    return all((_SHIPPED / name).exists() or (_store() / name).exists() for name in _names(sdk_sources()))


def ship_objects() -> None:
    """Puts the objects of the SDK where a wheel takes them along."""
    _SHIPPED.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="aici-sdk-") as folder:
        wanted = {path.name: path for path in sdk_objects(sdk_sources(), Path(folder))}
        for old in _SHIPPED.glob("*.o"):
            if old.name not in wanted:
                old.unlink()
        for name, path in wanted.items():
            if path.parent != _SHIPPED:
                shutil.copyfile(path, _SHIPPED / name)


def _store() -> Path:
    return default_cache_dir() / "sdk"


def _names(sources: Sequence[Path]) -> list[str]:
    common = f"{zig.version()} {zig.FLAGS} {digest(sdk_headers(), sdk_dir())}"
    keys = [f"{common} {digest([source], sdk_dir())}" for source in sources]
    return [f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.o" for key in keys]


def _compile(missing: Mapping[Path, Path], place: Path) -> None:
    """Compiled in a folder of their own first: somebody else may be at it too."""
    with tempfile.TemporaryDirectory(prefix="compile-", dir=place) as folder:
        fresh = {source: Path(folder) / path.name for source, path in missing.items()}
        root = sdk_dir()
        zig.compile([zig.Unit(source=s, out=o, root=root, include=root / "include") for s, o in fresh.items()])
        for source, path in missing.items():
            fresh[source].replace(path)


def _forget_old(store: Path) -> None:
    """What no build has used for two weeks."""
    for path in store.glob("*.o"):
        if path.stat().st_mtime < time.time() - _KEEP_S:
            path.unlink(missing_ok=True)
