"""Where the SDK is, and its compiled form: each source is compiled once per content, flags and toolchain."""

import hashlib
import os
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Final

from aici_controllers import zig
from aici_runtime.cache import default_cache_dir

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


def sdk_objects(sources: Sequence[Path], folder: Path) -> list[Path]:
    """Sources of the SDK as object files, in their order. Those that are not in the cache are compiled and put there;
    where the cache cannot be written, into `folder`, which must outlive their use."""
    store = default_cache_dir() / "sdk"
    try:
        store.mkdir(parents=True, exist_ok=True)
        _forget_old(store)
    except OSError:
        store = folder
    common = f"{zig.version()} {zig.FLAGS} {digest(sdk_headers(), sdk_dir())}"
    with ThreadPoolExecutor(min(4, os.cpu_count() or 1)) as pool:
        return list(pool.map(lambda source: _object(source, store, common), sources))


def _object(source: Path, store: Path, common: str) -> Path:
    key = hashlib.sha256(f"{common} {digest([source], sdk_dir())}".encode()).hexdigest()[:32]
    path = store / f"{key}.o"
    try:
        os.utime(path)
    except OSError:
        # Compiled under another name first: somebody else may be at it too.
        with tempfile.TemporaryDirectory(prefix="compile-", dir=store) as folder:
            zig.compile(source, Path(folder) / "new.o", root=sdk_dir(), include=[sdk_dir() / "include"])
            (Path(folder) / "new.o").replace(path)
    return path


def _forget_old(store: Path) -> None:
    """What no build has used for two weeks."""
    for path in store.glob("*.o"):
        if path.stat().st_mtime < time.time() - _KEEP_S:
            path.unlink(missing_ok=True)
