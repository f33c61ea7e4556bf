"""The loop of the guests' processes is compiled for all machines; a library of other sources is not loaded."""

import ctypes
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from aici_base.native_library import c_sources
from aici_controllers import guest_loop
from aici_controllers.compilers import run
from aici_runtime.guests.native import library

ROOT = Path(__file__).parents[2]
here = pytest.mark.skipif(not library.is_supported(), reason="no loop for this kind of machine")


@pytest.mark.parametrize("machine", library.MACHINES)
def test_all_machines_compile_the_sources(machine: str, tmp_path: Path) -> None:
    """Without linking, which would build the C library of the other machine."""
    build = guest_loop.of_machine(machine, tmp_path / "never.so")
    for source in c_sources(library.SOURCES):
        if source.suffix == ".c":
            run(build.command(tmp_path / f"{source.stem}.o", files=[source], flags=("-c",)))


def test_building_needs_the_standard_library_alone() -> None:
    """pip builds in an environment without the runtime's packages."""
    path = os.pathsep.join(str(ROOT / name) for name in ("runtime", "controllers"))
    command = [sys.executable, "-S", "-c", "import aici_controllers.guest_loop"]
    subprocess.run(command, check=True, env={"PYTHONPATH": path})


@here
def test_what_is_up_to_date_is_not_built_again_and_what_is_not_is(tmp_path: Path) -> None:
    out = tmp_path / library.LIBRARY.name
    assert guest_loop.build(out) == [out]
    built = out.read_bytes()
    assert ctypes.CDLL(str(out)).aici_guest_loop_abi() == library.abi()
    out.write_bytes(b"")
    guest_loop.build(out)
    assert out.read_bytes() == b""
    out.with_suffix(".hash").write_text("of another time")
    guest_loop.build(out)
    assert out.read_bytes() == built


@here
@pytest.mark.parametrize(
    ("native", "changed", "why"),
    [
        ("", "", ""),
        ("off", "", "switched off by AICI_NATIVE"),
        ("", "// changed", "aici-guest-loop.so was built from other sources"),
    ],
)
def test_why_a_library_is_not_loaded(tmp_path: Path, native: str, changed: str, why: str) -> None:
    """Only what another build would change has the hint to build."""
    guest_loop.build()
    copy = tmp_path / "src"
    copy.mkdir()
    for source in c_sources(library.SOURCES):
        (copy / source.name).write_bytes(source.read_bytes() + changed.encode())
    code = f"""
import json
from pathlib import Path
from aici_runtime.guests.native import library
library.SOURCES = Path({str(copy)!r})
found = library.describe()
print(json.dumps([found.library is library.load(), found.library is not None, found.why, bool(found.hint)]))"""
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | {"AICI_NATIVE": native}, stdout=subprocess.PIPE
    )
    assert json.loads(done.stdout) == [True, not why, why, bool(changed)]
