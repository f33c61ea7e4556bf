"""The kernels are compiled for all CPU levels of this machine; a library with other sources is refused."""

import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import pytest

from aici_base import native_choice
from aici_base.errors import UsageError
from aici_base.native_library import c_sources
from aici_controllers.compilers import run_all
from aici_engine.native import build, cpu_levels, library
from aici_runtime.guests.native import library as guest_loop

ROOT = Path(__file__).parents[3]
PACKAGE = Path(cpu_levels.__file__).parent
HERE = [level.name for level in cpu_levels.levels()]
ABLE = [level.name for level in cpu_levels.levels() if level.needs <= cpu_levels.features()]
pytestmark = pytest.mark.skipif(not HERE, reason="no kernels for this kind of machine")


def described(wanted: str, *paths: Path) -> tuple[str, str]:
    """Return level and reason as seen by a new process. `paths` precede this checkout."""
    code = "from aici_engine.native.library import describe as d; import json; print(json.dumps([d().level, d().why]))"
    env = os.environ | {"AICI_NATIVE": wanted, "PYTHONPATH": os.pathsep.join(map(str, [*paths, *sys.path]))}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    level, why = json.loads(done.stdout)
    return level, why


def test_each_level_that_the_processor_has_loads_and_the_best_is_taken() -> None:
    for name in ABLE:
        assert described(name) == (name, "")
    assert described("")[0] == (ABLE[-1] if ABLE else "")
    assert described("off") == ("", "switched off by AICI_NATIVE")


def test_the_names_of_the_levels_are_known_below_the_engine() -> None:
    names = {machine: tuple(level.name for level in found) for machine, found in cpu_levels.LEVELS.items()}
    assert names == native_choice.LEVELS


def test_a_level_that_cannot_run_here_is_refused_with_what_can(monkeypatch: pytest.MonkeyPatch) -> None:
    for wanted in ("avx1024", "OFF", *(name for name in HERE if name not in ABLE)):
        monkeypatch.setenv("AICI_NATIVE", wanted)
        with pytest.raises(UsageError, match=f"AICI_NATIVE is '?{wanted}") as error:
            library.load()
        assert error.value.hint == f"use one of {', '.join(['off', *ABLE])}"


@pytest.mark.parametrize("machine", set(cpu_levels.LEVELS) - {platform.machine()})
def test_other_machines_compile_the_same_sources(machine: str, tmp_path: Path) -> None:
    """Compile without optimization and linking, which would double the time of this file."""
    flags = ("-O0", "-fno-sanitize=all", "-Wno-unused-command-line-argument", "-c")
    commands = []
    for level in cpu_levels.LEVELS[machine]:
        native = build.of_level(level, machine, tmp_path / "never.so")
        for source in (path for path in c_sources(cpu_levels.SOURCES) if path.suffix == ".c"):
            out = tmp_path / f"{level.name}-{source.stem}.o"
            commands.append(native.command(out, files=[source], flags=flags))
    run_all(commands)


def test_building_needs_the_standard_library_alone() -> None:
    """pip builds in an environment without the engine's packages."""
    path = os.pathsep.join(str(ROOT / name) for name in ("runtime", "controllers", "engine"))
    command = [sys.executable, "-S", "-c", "import aici_engine.native.build"]
    subprocess.run(command, check=True, env={"PYTHONPATH": path})


def test_what_is_up_to_date_is_not_built_again_and_what_is_not_is(tmp_path: Path) -> None:
    for path in build.build():
        for copied in (path, path.with_suffix(".hash")):
            shutil.copy(copied, tmp_path)
    stale, *fresh = [tmp_path / f"aici-native-{name}.so" for name in HERE]
    stale.with_suffix(".hash").write_text("of another time")
    for path in (stale, *fresh):
        path.write_bytes(b"")
    assert build.build(tmp_path) == [stale, *fresh]
    assert stale.read_bytes() == (cpu_levels.LIBRARIES / stale.name).read_bytes()
    assert [path.read_bytes() for path in fresh] == [b""] * len(fresh)


@pytest.mark.skipif(not ABLE, reason="the processor has no level")
def test_a_library_of_other_sources_is_refused(tmp_path: Path) -> None:
    """Change the sources in a copy of the package after the build."""
    shutil.copytree(PACKAGE.parent, tmp_path / "aici_engine", ignore=shutil.ignore_patterns("__pycache__"))
    native = tmp_path / "aici_engine" / "native"
    assert described("", tmp_path) == (ABLE[-1], "")
    with (native / "src" / "version.c").open("a") as source:
        source.write("\n/* changed */\n")
    assert described("", tmp_path) == ("", f"aici-native-{ABLE[-1]}.so was built from other sources")
    (native / "lib" / f"aici-native-{ABLE[-1]}.so").write_bytes(b"\x7fELF")
    assert "cannot be loaded: " in described("", tmp_path)[1]
    (native / "lib" / f"aici-native-{ABLE[-1]}.so").unlink()
    assert described("", tmp_path) == ("", f"aici-native-{ABLE[-1]}.so is not built")


def test_the_wheel_is_of_this_kind_of_machine_and_its_library_loads() -> None:
    with tempfile.TemporaryDirectory(prefix="aici-wheel-") as name:
        folder = Path(name)
        hatch = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", name]
        subprocess.run(hatch, cwd=ROOT, check=True, capture_output=True)
        [wheel] = folder.glob("*.whl")
        assert wheel.stem.endswith(f"-{build.wheel_tag()}")
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-compile", "--target"]
        subprocess.run([*pip, str(folder / "site"), str(wheel)], check=True)
        installed = folder / "site" / "aici_engine" / "native" / "lib"
        assert sorted(path.stem for path in installed.iterdir()) == sorted(f"aici-native-{level}" for level in HERE)
        assert described("", folder / "site") == described("")
        [loop] = (folder / "site" / "aici_runtime" / "guests" / "native" / "lib").iterdir()
        assert loop.read_bytes() == guest_loop.LIBRARY.read_bytes()
        with zipfile.ZipFile(wheel) as archive:
            [tags] = [archive.read(name) for name in archive.namelist() if name.endswith(".dist-info/WHEEL")]
        assert b"Root-Is-Purelib: false" in tags
