"""The language of a path, the compilation of each language, and failures."""

import os
import shutil
from pathlib import Path

import pytest

from aici_base.errors import ControllerError, NotFoundError, UnavailableError, UsageError
from aici_controllers import assemblyscript, rust
from aici_controllers.build_project import build_project, find_project
from aici_controllers.sdk import sdk_dir
from aici_controllers.store import README_SECTION
from aici_runtime.abi import IMPORTS_V1
from aici_runtime.modules.custom_sections import custom_section


@pytest.mark.parametrize(
    ("files", "path", "language", "name"),
    [
        (["a.c", "b.c", "c.h"], "", "C", "project"),
        (["a.c", "b.cpp"], "", "C++", "project"),
        (["a.c", "b.cpp"], "a.c", "C", "a"),
        (["src/a.cc", "node_modules/x.zig", ".hidden/y.zig", "tests/z.zig"], "", "C++", "project"),
        (["main.zig", "other.zig"], "", "Zig", "project"),
        (["only.zig"], "", "Zig", "project"),
        (["Cargo.toml", "src/lib.rs", "target/x.c"], "", "Rust", "project"),
        (["Cargo.toml", "src/lib.rs"], "Cargo.toml", "Rust", "project"),
        (["package.json", "assembly/index.ts"], "", "AssemblyScript", "project"),
    ],
)
def test_languages(tmp_path: Path, files: list[str], path: str, language: str, name: str) -> None:
    folder = _project(tmp_path, files)
    found = find_project(folder / path if path else folder)
    assert (found.language, found.name) == (language, name)


@pytest.mark.parametrize(
    ("files", "path", "error", "says"),
    [
        (["readme.txt"], "", UsageError, "nothing to build"),
        ([], "", UsageError, "nothing to build"),
        (["a.py"], "a.py", UsageError, "nothing to build"),
        ([], "none", NotFoundError, "does not exist"),
        (["a.c", "main.zig"], "", UsageError, "more than one language: C, Zig"),
        (["a.zig", "b.zig"], "", UsageError, "several Zig files and no main.zig"),
    ],
)
def test_what_cannot_be_built(tmp_path: Path, files: list[str], path: str, error: type[Exception], says: str) -> None:
    folder = _project(tmp_path, files)
    with pytest.raises(error, match=says):
        find_project(folder / path if path else folder)


@pytest.mark.parametrize(
    ("source", "text", "says"),
    [
        ("a.c", "int f(void) { return nonsense; }", r"a\.c does not compile\n(.|\n)*a\.c:1:\d+: error: .*nonsense"),
        (
            "a.c",
            '#include "aici.h"\nvoid aici_init(void) {}',
            "this is not a controller:\n(.|\n)*does not export aici_create",
        ),
        ("a.cpp", "void nowhere(); void f() { nowhere(); }\n__attribute__((used)) auto g = f;", "does not link"),
        ("a.zig", "export fn aici_init() void { nonsense(); }", "does not compile(.|\n)*nonsense"),
    ],
)
def test_a_failure_leaves_the_old_module(tmp_path: Path, source: str, text: str, says: str) -> None:
    folder = _project(tmp_path, [])
    (folder / source).write_text(text)
    out = folder / "out.wasm"
    out.write_bytes(b"\0asm old")
    with pytest.raises(ControllerError, match=says):
        build_project(find_project(folder), out)
    assert out.read_bytes() == b"\0asm old"
    assert sorted(path.name for path in folder.iterdir()) == sorted([source, "out.wasm"])


def test_only_a_module_is_replaced(tmp_path: Path) -> None:
    """Nothing is compiled before the output path has been checked."""
    folder = _project(tmp_path, ["a.c"])
    (folder / "a.c").write_text("no C")
    (folder / "deep").mkdir()
    os.mkfifo(folder / "pipe")
    for out, says in ("a.c", "not a WebAssembly module"), ("deep", "is a folder"), ("pipe", "is no file"):
        with pytest.raises(UsageError, match=says):
            build_project(find_project(folder / "a.c"), folder / out)
    assert (folder / "a.c").read_text() == "no C"
    with pytest.raises(UsageError, match="is no file"):
        build_project(find_project(folder / "a.c"), Path("/dev/null"))


def test_odd_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names that begin like options, or end up in file names and formats of the toolchain."""
    garbage = (Path(__file__).parents[1] / "guests" / "garbage.c").read_text()
    monkeypatch.chdir(tmp_path)
    for name in ("-dash.c", "@at.c", "50% of ünï 名/it's #1 & co.c"):
        path = Path(name)
        path.parent.mkdir(exist_ok=True)
        path.write_text(garbage)
        assert build_project(find_project(path), path.with_suffix(".wasm")).path.exists()


def test_assertions_hold(tmp_path: Path) -> None:
    folder = _project(tmp_path, [])
    (folder / "a.c").write_text("#include <assert.h>\n#ifdef NDEBUG\n#error assertions are off\n#endif\n")
    with pytest.raises(ControllerError, match="this is not a controller"):
        build_project(find_project(folder), tmp_path / "a.wasm")


def test_warnings_are_shown(tmp_path: Path) -> None:
    folder = _project(tmp_path, [])
    shutil.copy(Path(__file__).parents[1] / "guests" / "garbage.c", folder / "a.c")
    with (folder / "a.c").open("a") as file:
        file.write("static int unused(int x) { return 1; }\n")
    built = build_project(find_project(folder), tmp_path / "deep" / "out.wasm")
    assert "unused" in built.warnings
    assert built.size_bytes == built.path.stat().st_size


def test_the_zig_binding_knows_every_import() -> None:
    text = (sdk_dir() / "zig" / "aici.zig").read_text()
    for name, (params, result) in IMPORTS_V1.items():
        [line] = [line for line in text.splitlines() if f"fn {name}(" in line]
        assert line.count(":") == len(params), line
        assert line.endswith(" u32;" if result else " void;"), line


def test_the_command_of_cargo(tmp_path: Path) -> None:
    assert rust.command(tmp_path / "p", tmp_path / "t") == [
        "cargo",
        "build",
        "--release",
        "--quiet",
        "--target=wasm32-unknown-unknown",
        f"--target-dir={tmp_path}/t",
        f"--manifest-path={tmp_path}/p/Cargo.toml",
    ]
    assert f"--remap-path-prefix={tmp_path}/p=." in rust.environment(tmp_path / "p")["RUSTFLAGS"]


def test_without_cargo_or_node_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UnavailableError, match="cargo is not installed") as missing:
        rust.require()
    assert "rustup target add wasm32-unknown-unknown" in missing.value.hint
    with pytest.raises(UnavailableError, match="node is not installed"):
        assemblyscript.compiler(tmp_path)


def test_a_rust_without_the_target_says_how_to_add_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fake cargo and rustc that only know the target of this machine."""
    for name, script in {"cargo": "exit 1", "rustc": f"echo {tmp_path}/sysroot"}.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    with pytest.raises(UnavailableError, match="target wasm32-unknown-unknown is not installed"):
        rust.build_rust(tmp_path, tmp_path / "out.wasm")


def test_the_projects_own_assemblyscript_comes_first(tmp_path: Path) -> None:
    if not shutil.which("node"):
        pytest.skip("node is not installed")
    own = tmp_path / "node_modules" / ".bin" / "asc"
    own.parent.mkdir(parents=True)
    own.write_text("")
    assert assemblyscript.compiler(tmp_path) == [str(own.resolve())]


def _project(tmp_path: Path, files: list[str]) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    for name in files:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("")
    return folder


def test_the_module_of_a_folder_carries_its_readme(tmp_path: Path) -> None:
    folder = _project(tmp_path, [])
    shutil.copy(Path(__file__).parents[1] / "guests" / "garbage.c", folder / "a.c")
    (folder / "README.md").write_text("# Garbage")
    built = build_project(find_project(folder), tmp_path / "folder.wasm")
    assert custom_section(built.path.read_bytes(), README_SECTION) == b"# Garbage"
    alone = build_project(find_project(folder / "a.c"), tmp_path / "file.wasm")
    assert custom_section(alone.path.read_bytes(), README_SECTION) is None
