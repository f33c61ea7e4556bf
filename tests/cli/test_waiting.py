"""What a command is doing before its first output."""

import re

import pytest

from tests.cli.test_frame import HEAVY
from tests.support.cli import AICI, aici
from tests.support.terminal import at_terminal

NOWHERE = ["--server", "http://127.0.0.1:1"]


@pytest.mark.parametrize("command", [["run", "x"], ["chat"]])
def test_a_terminal_is_told_first_of_all_and_the_text_is_erased(command: list[str]) -> None:
    with at_terminal([*AICI, *command, *NOWHERE]) as terminal:
        assert terminal.until("\x1b[K") == "loading ...\r\x1b[K"
        shown = terminal.until("cannot be reached")
        assert shown.count("loading ...") == shown.count("\x1b[K") == 1
        assert terminal.wait() == 3


@pytest.mark.parametrize("command", ["run", "chat"])
def test_nearly_nothing_is_imported_before_the_terminal_is_told(command: str) -> None:
    """What a start of 300 ms has time for: the interpreter, Typer, and six small modules of ours."""
    with at_terminal([*AICI, command, *NOWHERE], {"PYTHONPROFILEIMPORTTIME": "1"}) as terminal:
        imported = set(re.findall(r"\| +([\w.]+)\r?\n", terminal.until("loading ...")))
        terminal.wait()
    assert {"typer", "aici_cli.waiting"} <= imported
    ours = {name for name in imported if name.startswith("aici")}
    assert ours <= {f"aici_cli{name}" for name in ("", ".main", ".output", ".waiting")} | {
        "aici_base",
        "aici_base.errors",
        "aici_base.plain_text",
    }
    assert not {name.partition(".")[0] for name in imported} & {*HEAVY, "rich", "asyncio"}


def test_a_wrong_option_is_no_part_of_the_text() -> None:
    with at_terminal([*AICI, "run", "--nothing"], {"NO_COLOR": "1"}) as terminal:
        assert terminal.until("error: ").endswith("\x1b[Kerror: ")
        assert terminal.wait() == 2


@pytest.mark.parametrize("env", [{}, {"FORCE_COLOR": "1"}])
def test_a_pipe_is_told_nothing(env: dict[str, str]) -> None:
    assert "loading" not in aici("run", *NOWHERE, "x", env=env).stderr
