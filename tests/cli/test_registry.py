"""`aici ctrl upload | list | tag | tags | pull | rm` without a server, as a user runs the commands."""

import hashlib
import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from aici_base.errors import NotFoundError
from aici_cli.constraint import Flags, constraint_from
from aici_cli.controller_stores import LocalStore
from aici_controllers.catalog import SHIPPED, guest_names, guest_path
from aici_controllers.sdk import sdk_dir
from tests.runtime.support import wat
from tests.support.cli import aici

WASM = wat.plain()
HEX = hashlib.sha256(WASM).hexdigest()
Ctrl: TypeAlias = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def ctrl(tmp_path: Path) -> Ctrl:
    (tmp_path / "plain.wasm").write_bytes(WASM)
    env = {"AICI_STORE_DIR": str(tmp_path / "store"), "AICI_API_BASE": ""}
    return lambda *args: aici("ctrl", *(arg.format(here=tmp_path) for arg in args), env=env)


def ok(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_from_upload_to_removal(ctrl: Ctrl, tmp_path: Path) -> None:
    uploaded = ctrl("upload", "mine={here}/plain.wasm", "--tag", "latest")
    assert ok(uploaded) == f"{HEX}\n"
    assert uploaded.stderr.splitlines()[1:] == ["tagged mine", "tagged latest"]
    again: dict[str, Any] = json.loads(ok(ctrl("upload", "{here}/plain.wasm", "--json")))
    assert set(again) == {"module_id", "wasm_size", "compiled_size", "time", "tags"}
    assert ok(ctrl("tag", "mine", "other")).startswith("other ")
    assert [line.split()[0] for line in ok(ctrl("tags")).splitlines()] == sorted(
        [*guest_names(), "latest", "mine", "other"]
    )
    shipped = guest_names()
    lines = ok(ctrl("list")).splitlines()
    assert [line.split()[-1] for line in lines[: len(shipped)]] == shipped
    assert lines[len(shipped)].startswith(HEX)
    assert lines[len(shipped)].split()[-5:] == ["by", "local", "latest", "mine", "other"]
    [*_, module] = json.loads(ok(ctrl("list", "--json")))
    assert (module["module_id"], module["compiled_size"]) == (HEX, again["compiled_size"])
    assert ok(ctrl("pull", "other", "-o", "{here}/out.wasm")) == f"{HEX}\n"
    assert (tmp_path / "out.wasm").read_bytes() == WASM
    kept = ctrl("rm", HEX)
    assert kept.returncode == 2
    assert "has the tags latest, mine, other" in kept.stderr
    assert ok(ctrl("rm", "other", "latest")) == "other\nlatest\n"
    assert json.loads(ok(ctrl("rm", HEX, "--force", "--json"))) == [{"module_id": HEX, "tags": ["mine"]}]
    assert [tag["tag"] for tag in json.loads(ok(ctrl("tags", "--json")))] == guest_names()


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        (["upload", "1st={here}/plain.wasm"], 2, "'1st': tag name not identifier"),
        (["upload", "={here}/plain.wasm"], 2, "'': tag name not identifier"),
        (["upload", "regex={here}/plain.wasm"], 2, "regex is a name of aici's own"),
        (["upload", "{here}/plain.wasm", "--tag", "x" * 51], 2, "tag name too long"),
        (["upload", "{here}/nothing.wasm"], 2, "cannot be read"),
        (["tag", "nobody", "it"], 2, "no controller is called nobody"),
        (["tag", "regex", "no tag"], 2, "'no tag': tag name not identifier"),
        (["rm", "nobody"], 2, "tag nobody not found"),
        (["rm", "regex"], 1, "regex is a name of aici's own"),
        (["rm", hashlib.sha256(guest_path("regex").read_bytes()).hexdigest()], 1, "is one of aici's own"),
        (["rm", "0" * 64], 2, "not found"),
        (["pull", "regex"], 2, "no server is given to pull from"),
        (["pull", "regexx", "-o", "{here}/x"], 2, "did you mean regex?"),
        (["pull", "regex", "-o", "{here}/x", "--tag", "y"], 2, "it does not go with -o"),
    ],
)
def test_wrong_use(ctrl: Ctrl, args: list[str], code: int, said: str) -> None:
    done = ctrl(*args)
    assert done.returncode == code, done.stderr
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_a_stored_controller_runs_by_its_name() -> None:
    local = LocalStore()
    local.upload(WASM)
    local.set_tags(HEX, ["of-this-test"])
    for name in ("of-this-test", HEX):
        control = constraint_from(Flags(controller=name, controller_arg="x"))
        assert control is not None
        assert (control.controller, control.argument) == (name, "x")
    assert local.remove(HEX, force=True) == ["of-this-test"]
    with pytest.raises(NotFoundError, match="no controller is called 'of-this-test'"):
        constraint_from(Flags(controller="of-this-test"))


def test_the_catalog_names_every_guest_whose_source_is_here() -> None:
    sources = {path.name for path in (sdk_dir().parent / "guests").iterdir() if any(path.glob("*.c*"))}
    assert sources <= set(SHIPPED)
    assert set(guest_names()) <= set(SHIPPED)
