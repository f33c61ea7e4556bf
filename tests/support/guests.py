"""Build the small guests of `tests/guests/`, once for all test runs on the same sources; and the shipped guests."""

import hashlib
import os
import tempfile
from functools import cache
from pathlib import Path

from aici_base.native_library import digest
from aici_controllers import build, sdk, zig
from tests.support.fake_host import GuestModule

_SOURCES = Path(__file__).resolve().parent.parent / "guests"
_CONTROLLERS = Path(__file__).resolve().parents[2] / "controllers"


def build_test_guest(name: str) -> Path:
    """Return the path of the module built from `tests/guests/NAME.cpp` or `.c`. Tests share the file: do not change
    it."""
    source = next(path for path in (_SOURCES / f"{name}.cpp", _SOURCES / f"{name}.c") if path.exists())
    state = f"{digest([*sdk.sdk_sources(), *sdk.sdk_headers()], sdk.sdk_dir())} {zig.version()} {zig.FLAGS}"
    total = hashlib.sha256(state.encode() + source.read_bytes())
    folder = Path(tempfile.gettempdir()) / f"aici-test-guests-{os.getuid()}"
    out = folder / f"{name}-{total.hexdigest()[:16]}.wasm"
    if not out.exists():
        build.build_guest([source], out)
    return out


@cache
def shipped_guest(name: str) -> GuestModule:
    """Return a guest of `controllers/guests/`, rebuilt if the sources changed."""
    modules = build.build_shipped(_CONTROLLERS / "guests", _CONTROLLERS / "aici_controllers" / "guests")
    return GuestModule(next(path for path in modules if path.stem == name))
