"""What a command is doing before its first output."""

import pytest

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


def test_a_wrong_option_is_no_part_of_the_text() -> None:
    with at_terminal([*AICI, "run", "--nothing"], {"NO_COLOR": "1"}) as terminal:
        assert terminal.until("error: ").endswith("\x1b[Kerror: ")
        assert terminal.wait() == 2


@pytest.mark.parametrize("env", [{}, {"FORCE_COLOR": "1"}])
def test_a_pipe_is_told_nothing(env: dict[str, str]) -> None:
    assert "loading" not in aici("run", *NOWHERE, "x", env=env).stderr
