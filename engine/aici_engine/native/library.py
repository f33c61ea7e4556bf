"""Load the native library for this CPU. Without a library, torch runs the models: slower, with equal results."""

import ctypes
from dataclasses import replace
from functools import cache
from typing import Final

from aici_base.errors import UsageError
from aici_base.native_choice import OFF, SWITCHED_OFF, VARIABLE, chosen
from aici_base.native_library import NativeLibrary, no_build, open_library
from aici_engine.native.bindings import declare
from aici_engine.native.cpu_levels import LIBRARIES, CpuLevel, abi, features, levels

_BUILD: Final = "`make kernels` in a checkout, or `python -m aici_engine.native.build`, builds them"


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
    return _find(chosen([level.name for level in _able()]))


@cache
def _find(wanted: str) -> NativeLibrary:
    if wanted == OFF:
        return NativeLibrary(None, why=SWITCHED_OFF)
    if not levels():
        return NativeLibrary(None, why=no_build("kernels exist"))
    able = _able()
    if wanted:
        chosen = _named(wanted, able)
        found = _open(chosen)
        if found.library is None:
            raise UsageError(f"{VARIABLE} is {wanted}, but {found.why}", hint=found.hint)
        return found
    if not able:
        return NativeLibrary(None, why=f"the processor lacks features of the lowest level, {levels()[0].name}")
    return _open(able[-1])


def _able() -> list[CpuLevel]:
    return [level for level in levels() if level.needs <= features()]


def _named(wanted: str, able: list[CpuLevel]) -> CpuLevel:
    known = {level.name: level for level in levels()}
    if known[wanted] not in able:
        names = ", ".join([OFF, *(level.name for level in able)])
        missing = ", ".join(sorted(known[wanted].needs - features()))
        raise UsageError(f"{VARIABLE} is {wanted}, but the processor lacks {missing}", hint=f"use one of {names}")
    return known[wanted]


def _open(level: CpuLevel) -> NativeLibrary:
    path = LIBRARIES / level.library
    found = open_library(path, number=abi(), function="aici_native_abi", hint=_BUILD)
    if found.library is None:
        return found
    declare(found.library)
    return replace(found, level=level.name)
