"""The programs that `aici run` treats as scripts."""

from pathlib import Path

import pytest

from aici_base.errors import NotFoundError, UsageError
from aici_cli.script import script_from
from tests.support.cli import aici


@pytest.mark.parametrize(
    ("name", "guest"), [("a.js", "jsctrl"), ("a.mjs", "jsctrl"), ("a.py", "pyctrl"), ("a.json", "declctrl")]
)
def test_the_suffix_tells_the_controller(name: str, guest: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text("é")
    script = script_from(str(tmp_path / name), None, is_free=True)
    assert script is not None
    assert (script.guest, script.text) == (guest, "é")
    with pytest.raises(UsageError, match="is a script"):
        script_from(str(tmp_path / name), None, is_free=False)


def test_a_named_controller_takes_any_file(tmp_path: Path) -> None:
    (tmp_path / "script").write_text("x")
    script = script_from(str(tmp_path / "script"), "pyctrl", is_free=False)
    assert script is not None
    assert script.guest == "pyctrl"
    with pytest.raises(UsageError, match="needs a script"):
        script_from(None, "pyctrl", is_free=False)


@pytest.mark.parametrize("prompt", [None, "", "Once upon a time", "I wrote it in node.js", "v1.2"])
def test_prompts_are_no_scripts(prompt: str | None) -> None:
    assert script_from(prompt, None, is_free=True) is None


def test_a_missing_script_is_no_prompt() -> None:
    with pytest.raises(NotFoundError, match=r"no file answer\.js"):
        script_from("answer.js", None, is_free=True)
    done = aici("run", "answer.js")
    assert done.returncode == 2
    assert "--prompt answer.js" in done.stderr
    assert aici("run", "--prompt", "a", "b").returncode == 2


@pytest.mark.parametrize("is_free", [True, False])
def test_a_folder_is_no_prompt(is_free: bool, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is a folder") as error:
        script_from(str(tmp_path), None, is_free=is_free)
    hint = error.value.hint_for("cli")
    assert f"--prompt {tmp_path}" in hint
    assert "--model" not in hint
    (tmp_path / "config.json").touch()
    with pytest.raises(UsageError, match="is a folder") as error:
        script_from(str(tmp_path), None, is_free=is_free)
    assert f"aici run --model {tmp_path}" in error.value.hint_for("cli")
