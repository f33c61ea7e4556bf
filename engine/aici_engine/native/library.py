"""Load the native library for this CPU. Without a library, torch runs the models: slower, with equal results."""

import ctypes
import os
import platform
from dataclasses import dataclass
from functools import cache
from typing import Final

from aici_base.errors import UsageError
from aici_engine.native.bindings import declare
from aici_engine.native.cpu_levels import LIBRARIES, CpuLevel, abi, features, levels

VARIABLE: Final = "AICI_NATIVE"
_BUILD: Final = "`make kernels` in a checkout, or `python -m aici_engine.native.build`, builds them"


@dataclass(frozen=True, slots=True)
class NativeLibrary:
    """`library` and its `level`; or None, with the reason (`why`) and a `hint`."""

    library: ctypes.CDLL | None
    level: str = ""
    why: str = ""
    hint: str = ""


def load() -> ctypes.CDLL | None:
    """Return the library of the best level for this CPU, or of the level in AICI_NATIVE; None if AICI_NATIVE is `off`.

    Raises UsageError if AICI_NATIVE names an unknown level, or a level that this CPU cannot run.
    """
    return describe().library


def of_level(name: str) -> ctypes.CDLL:
    """Return the library of the level `name`; AICI_NATIVE has no effect.

    Raises UsageError if this CPU cannot run the level.
    """
    library = _find(name).library
    assert library is not None  # the error was raised
    return library


def describe() -> NativeLibrary:
    """Return the result of `load` with level, reason and hint."""
    return _find(os.environ.get(VARIABLE, ""))


@cache
def _find(wanted: str) -> NativeLibrary:
    if wanted == "off":
        return NativeLibrary(None, why=f"switched off by {VARIABLE}")
    if not levels():
        return NativeLibrary(
            None, why=f"no kernels exist for {platform.machine()} ({platform.libc_ver()[0] or 'no glibc'})"
        )
    able = [level for level in levels() if level.needs <= features()]
    if wanted:
        chosen = _named(wanted, able)
        found = _open(chosen)
        if found.library is None:
            raise UsageError(f"{VARIABLE} is {wanted}, but {found.why}", hint=found.hint)
        return found
    if not able:
        return NativeLibrary(None, why=f"the processor lacks features of the lowest level, {levels()[0].name}")
    return _open(able[-1])


def _named(wanted: str, able: list[CpuLevel]) -> CpuLevel:
    known = {level.name: level for level in levels()}
    names = ", ".join(["off", *(level.name for level in able)])
    if wanted not in known:
        raise UsageError(f"{VARIABLE} is {wanted!r}, which is not a level of this machine", hint=f"use one of {names}")
    if known[wanted] not in able:
        missing = ", ".join(sorted(known[wanted].needs - features()))
        raise UsageError(f"{VARIABLE} is {wanted}, but the processor lacks {missing}", hint=f"use one of {names}")
    return known[wanted]


def _open(level: CpuLevel) -> NativeLibrary:
    path = LIBRARIES / level.library
    if not path.is_file():
        return NativeLibrary(None, why=f"{path.name} is not built", hint=_BUILD)
    try:
        library = ctypes.CDLL(str(path))
        is_current = library.aici_native_abi() == abi()
    except (OSError, AttributeError) as error:
        return NativeLibrary(None, why=f"{path.name} cannot be loaded: {error}", hint=_BUILD)
    if not is_current:
        return NativeLibrary(None, why=f"{path.name} was built from other sources", hint=_BUILD)
    declare(library)
    return NativeLibrary(library, level=level.name)
