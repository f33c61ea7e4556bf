"""Tables and help: rich's on a terminal, and the same words as plain text in a pipe."""

import re
from pathlib import Path

import pytest

from aici_cli.tables import print_rows, print_table, table_text
from tests.support.cli import AICI, aici
from tests.support.terminal import at_terminal

ESCAPES = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


def test_a_table_in_a_pipe_is_plain_and_never_folded(capsys: pytest.CaptureFixture[str]) -> None:
    long = "x" * 500
    print_table(("name", "MB"), [("[bold]a[/]", 12), (long, 3), ("short",)])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split() for line in lines] == [["name", "MB"], ["[bold]a[/]", "12"], [long, "3"], ["short"]]
    assert lines[1].endswith(" 12")
    assert lines[2].endswith("   3")  # numbers are flush right
    assert not any(line != line.rstrip() for line in lines)
    print_rows([])
    print_rows([("a", "b")])
    assert capsys.readouterr().out == "a  b\n"


def test_a_table_on_a_terminal_has_the_same_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    rows = [("a", "1"), ("b", "22")]
    shown = table_text(("name", "MB"), rows, is_terminal=True)
    assert "\x1b[1m" in shown
    assert ESCAPES.sub("", shown).split() == table_text(("name", "MB"), rows).split()


@pytest.mark.parametrize("command", [["ctrl", "upload", "--help"], ["node", "join", "--help"]])
def test_help_at_a_terminal_has_the_words_of_help_in_a_pipe(command: list[str]) -> None:
    plain = aici(*command)
    assert "─" not in plain.stdout
    assert "\x1b" not in plain.stdout
    with at_terminal([*AICI, *command], {"COLUMNS": "300", "NO_COLOR": ""}) as terminal:
        shown = ESCAPES.sub("", terminal.until("Show this message"))
        assert terminal.wait() == 0
    assert "─" in shown
    options = re.compile(r"--[a-z-]{3,}|\[NAME=\]FILE\.wasm")
    assert set(options.findall(plain.stdout)) == set(options.findall(shown)) | {"--help"}


def test_models_in_a_pipe_are_a_line_each(tmp_path: Path) -> None:
    folder = tmp_path / "models" / ("long-name" * 20)
    folder.mkdir(parents=True)
    for name in ("config.json", "tokenizer.json", "model.safetensors"):
        (folder / name).write_text("{}")
    done = aici("models", "list", env={"AICI_CACHE_DIR": str(tmp_path)})
    assert done.stdout.splitlines() == [f"{folder.name}  0 MB  {folder}"]
