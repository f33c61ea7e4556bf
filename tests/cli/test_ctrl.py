"""`aici ctrl`, as a user runs the command: every language from `new` to `test`, and errors."""

import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from aici_base.errors import UnavailableError
from aici_cli.ctrl import Language
from aici_controllers import rust
from aici_controllers.assemblyscript import PACKAGE
from aici_controllers.starter_files import languages
from tests.support.cli import aici


def test_every_language_has_a_starter() -> None:
    assert languages() == sorted(Language)


@pytest.mark.parametrize("language", languages())
def test_from_new_to_test(tmp_path: Path, language: str) -> None:
    """The starter is built twice, in different folders, to the same bytes; the cases pass, on real vocabularies too."""
    for folder in ("one", "two/deeper"):
        (tmp_path / folder).mkdir(parents=True)
        done = aici("ctrl", "new", "yes-no", "--lang", language, "--dir", str(tmp_path / folder))
        assert done.returncode == 0, done.stderr
        assert done.stdout == f"{tmp_path / folder}/yes-no\n"
        assert "@NAME@" not in "".join(p.read_text() for p in (tmp_path / folder).rglob("*") if p.is_file())
    one, two = tmp_path / "one" / "yes-no", tmp_path / "two" / "deeper" / "yes-no"
    if language == "assemblyscript":
        for project in (one, two):
            (project / "node_modules").symlink_to(_assemblyscript())
    built = aici("ctrl", "build", str(one))
    if language == "rust" and not _rust_is_there():
        assert built.returncode == 1
        assert "rustup target add wasm32-unknown-unknown" in built.stderr
        assert "Traceback" not in built.stderr
        return
    assert built.returncode == 0, built.stderr
    assert built.stderr == ""
    assert built.stdout.startswith(f"{one}/yes-no.wasm  ")
    again = aici("ctrl", "build", str(two), "--out", str(tmp_path / "again.wasm"), "--json")
    assert json.loads(again.stdout)["size_bytes"] == (tmp_path / "again.wasm").stat().st_size
    assert (one / "yes-no.wasm").read_bytes() == (tmp_path / "again.wasm").read_bytes()
    tested = aici("ctrl", "test", str(one / "yes-no.wasm"), str(one / "cases.toml"))
    assert tested.returncode == 0, tested.stdout + tested.stderr
    assert [line.split()[0] for line in tested.stdout.splitlines()] == ["ok", "ok"]


def _assemblyscript() -> Path:
    """The pinned compiler, installed once for all test runs."""
    if not shutil.which("npm"):
        pytest.skip("node is not installed")
    folder = Path(tempfile.gettempdir()) / f"aici-test-{PACKAGE}-{os.getuid()}"
    if not (folder / "node_modules" / ".bin" / "asc").exists():
        command = ["npm", "install", "--silent", "--no-save", f"--prefix={folder}", PACKAGE]
        if subprocess.run(command, capture_output=True, timeout=100).returncode:
            pytest.skip(f"npm cannot fetch {PACKAGE}")
    return folder / "node_modules"


def _rust_is_there() -> bool:
    try:
        rust.require()
    except UnavailableError:
        return False
    return True


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    done = aici("ctrl", "new", "mine", "--dir", str(tmp_path))
    assert done.returncode == 2
    assert "exists already" in done.stderr
    assert list((tmp_path / "mine").iterdir()) == []


def test_a_starter_for_scripts(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "scripts"
    done = aici("ctrl", "init-js", str(folder), "--json")
    assert json.loads(done.stdout)["files"] == [
        str(folder / name) for name in ("aici.d.ts", "hello.js", "tsconfig.json")
    ]
    assert aici("ctrl", "init-js", str(folder)).returncode == 0
    (folder / "hello.js").write_text("mine")
    done = aici("ctrl", "init-js", str(folder))
    assert done.returncode == 2
    assert "hello.js exists already" in done.stderr
    assert (folder / "hello.js").read_text() == "mine"
    assert aici("ctrl", "init-js", "--force", str(folder)).returncode == 0
    assert "aici run hello.js" in (folder / "hello.js").read_text()
    assert aici("ctrl", "init-js", str(folder / "hello.js")).returncode == 2
    done = aici("ctrl", "init-py", str(folder), "--json")
    assert json.loads(done.stdout)["files"] == [str(folder / name) for name in ("aici.pyi", "hello.py")]


@pytest.mark.parametrize(
    ("args", "code", "says"),
    [
        (["new", "../x"], 2, "is not a valid name for a controller"),
        (["new", "x", "--lang", "cobol"], 2, "cobol"),
        (["build", "nowhere"], 2, "does not exist"),
        (["test", "nowhere.wasm", "{cases}"], 2, "cannot be read"),
        (["test", "{cases}", "{cases}"], 2, "not a WebAssembly module"),
        (["test", "{script}", "{cases}"], 2, "hello.py is a script, not a WebAssembly module"),
        (["upload", "{script}"], 2, "hello.py runs it"),
        (["test", "nowhere.wasm", "nowhere.toml"], 2, "the cases cannot be read"),
        (["test", "/dev/zero", "{cases}"], 2, "controller /dev/zero is larger than 128 MiB"),
        (["test", "nowhere.wasm", "/dev/zero"], 2, "/dev/zero is larger than 4 MiB"),
    ],
)
def test_wrong_use(tmp_path: Path, args: list[str], code: int, says: str) -> None:
    cases = tmp_path / "cases.toml"
    cases.write_text("[[case]]\n")
    script = tmp_path / "hello.py"
    script.write_text("pass\n")
    done = aici("ctrl", *[arg.format(cases=cases, script=script) for arg in args])
    assert done.returncode == code
    assert says in done.stderr
    assert "Traceback" not in done.stderr


def test_compiler_errors_are_shown_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "bad.c").write_text("int f(void) {\n  return nonsense;\n}\n")
    done = aici("ctrl", "build", str(tmp_path / "bad.c"))
    assert done.returncode == 1
    assert f"{tmp_path}/bad.c:2:10: error: use of undeclared identifier 'nonsense'" in done.stderr
    assert "  return nonsense;" in done.stderr


def test_a_failed_case_is_exit_1_and_shows_the_log(tmp_path: Path) -> None:
    from aici_controllers.catalog import guest_path

    (tmp_path / "cases.toml").write_text(
        """
        [[case]]
        name = "one"
        argument = "a"
        steps = [{ allowed = ["b"] }]
        [[case]]
        argument = "a"
        steps = [{ sample = "a", stop = true }]
        """
    )
    arguments = ("ctrl", "test", str(guest_path("regex")), str(tmp_path / "cases.toml"))
    done = aici(*arguments)
    assert done.returncode == 1
    assert done.stdout.splitlines() == [
        'FAIL  one: step 1: "b" is not allowed; allowed: "a"',
        '      log: regex constraint: "a"',
        "ok    case 2",
    ]
    assert done.stderr == "2 cases, 1 failed\n"
    done = aici(*arguments, "--json")
    assert done.returncode == 1
    assert [(entry["name"], entry["ok"], entry["step"]) for entry in json.loads(done.stdout)] == [
        ("one", False, 1),
        ("case 2", True, 1),
    ]


def test_cases_on_the_vocabulary_of_a_model(tmp_path: Path) -> None:
    """Byte fallback, and tokens of many bytes."""
    from aici_controllers.byte_tokenizer import write_byte_tokenizer
    from aici_controllers.catalog import guest_path

    tokenizer = write_byte_tokenizer(tmp_path, ["hello", "hell"])
    (tmp_path / "cases.toml").write_text(
        """
        [[case]]
        argument = "hello+"
        prompt = "hello, hello"
        steps = [{ exactly = ["hello"], sample = "hello" }, { exactly = ["o"], end = true }]
        """
    )
    done = aici("ctrl", "test", str(guest_path("regex")), str(tmp_path / "cases.toml"), "--tokenizer", str(tokenizer))
    assert done.returncode == 0, done.stdout


def test_the_schema_of_declarative_steps() -> None:
    done = aici("ctrl", "schema")
    assert done.returncode == 0
    assert json.loads(done.stdout)["title"] == "Declarative steps"
