"""Load the native library of the loop. Without a library, Python serves the guests: slower, with equal answers."""

import ctypes
import platform
from ctypes import POINTER, c_int32, c_uint32
from functools import cache
from pathlib import Path
from typing import Final

from aici_base import native_library
from aici_base.native_choice import OFF, SWITCHED_OFF, chosen
from aici_base.native_library import NativeLibrary
from aici_runtime.guests.native.structures import CCalmTurns, CGuest, CHost, CPool

SOURCES: Final = Path(__file__).resolve().parent / "src"
LIBRARY: Final = Path(__file__).resolve().parent / "lib" / "aici-guest-loop.so"
MACHINES: Final = ("x86_64", "aarch64")
_BUILD: Final = "`make kernels` in a checkout, or `python -m aici_controllers.guest_loop`, builds the loop"


def is_supported() -> bool:
    """Whether the library can be built for this machine."""
    return platform.machine() in MACHINES and platform.libc_ver()[0] == "glibc"


def abi() -> int:
    """Return a hash of the C sources. A library with another number was built from other sources."""
    return native_library.source_number(SOURCES)


def load() -> ctypes.CDLL | None:
    """Return the library; None if AICI_NATIVE is `off`, or the library is missing or was built from other sources.

    Raises UsageError if AICI_NATIVE has an unknown word.
    """
    return describe().library


def describe() -> NativeLibrary:
    """Return the result of `load` with reason and hint."""
    return NativeLibrary(None, why=SWITCHED_OFF) if chosen() == OFF else open_library()


@cache
def open_library() -> NativeLibrary:
    if not LIBRARY.is_file() and not is_supported():
        return NativeLibrary(None, why=native_library.no_build("loop in C exists"))
    found = native_library.open_library(LIBRARY, number=abi(), function="aici_guest_loop_abi", hint=_BUILD)
    if (library := found.library) is None:
        return found
    library.aici_serve_guest.argtypes = [POINTER(CHost), POINTER(CGuest)]
    library.aici_serve_guest.restype = None
    library.aici_serve_pool.argtypes = [POINTER(CHost), POINTER(CPool)]
    library.aici_serve_pool.restype = c_int32
    library.aici_serve_turns.argtypes = [POINTER(CCalmTurns)]
    library.aici_serve_turns.restype = c_uint32
    for name in ("aici_lock_guests", "aici_unlock_guests"):
        getattr(library, name).argtypes = [POINTER(c_uint32)]
        getattr(library, name).restype = None
    return found
