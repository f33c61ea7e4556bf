"""Libraries in C that ship compiled beside their Python: the sources, and the library that was built from them."""

import ctypes
import hashlib
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class NativeLibrary:
    """`library`, and its `level` if there are several; or None, with the reason (`why`) and a `hint`."""

    library: ctypes.CDLL | None
    level: str = ""
    why: str = ""
    hint: str = ""


def digest(paths: Sequence[Path], root: Path) -> str:
    """Return a hash of the contents, and of the names relative to `root`."""
    total = hashlib.sha256()
    for path in sorted(paths):
        content = path.read_bytes()
        total.update(f"{path.relative_to(root)} {len(content)}\n".encode() + content)
    return total.hexdigest()


def c_sources(folder: Path) -> list[Path]:
    """Return the sources and headers in a folder."""
    return sorted([*folder.glob("*.c"), *folder.glob("*.h")])


def source_number(folder: Path) -> int:
    """Return a hash of the C sources in a folder. A library with another number was built from other sources."""
    return int(digest(c_sources(folder), folder)[:7], 16)


def no_build(what: str) -> str:
    """Say that there is no library for this machine."""
    return f"no {what} for {platform.machine()} ({platform.libc_ver()[0] or 'no glibc'})"


def open_library(path: Path, *, number: int, function: str, hint: str) -> NativeLibrary:
    """Load a library whose `function` returns the `number` of the sources. `hint`: how the library is built."""
    if not path.is_file():
        return NativeLibrary(None, why=f"{path.name} is not built", hint=hint)
    try:
        library = ctypes.CDLL(str(path))
        is_current = library[function]() == number
    except (OSError, AttributeError) as error:
        return NativeLibrary(None, why=f"{path.name} cannot be loaded: {error}", hint=hint)
    if not is_current:
        return NativeLibrary(None, why=f"{path.name} was built from other sources", hint=hint)
    return NativeLibrary(library)
