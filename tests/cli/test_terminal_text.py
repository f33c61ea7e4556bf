"""The text of a model on a terminal: escape sequences are shown, and never carried out. A pipe gets the text as is."""

import subprocess
import sys

import pytest

from aici_base.errors import UsageError
from aici_cli.output import print_error
from tests.support.terminal import at_terminal

TEXT = "a\tb\nred \x1b[31m, title \x1b]0;owned\x07, back \r\x08, C1 \x9b31m, é ↩\n"
SHOWN = r"red \x1b[31m, title \x1b]0;owned\x07, back \r\x08, C1 \x9b31m, é ↩"
PROGRAM = f"""
import aici
from aici.backend import Call
from aici.constraints import UNCONSTRAINED
from aici.stream import Stream
from aici_cli.render import stream_text
from tests.support.fake_backend import FakeBackend, finish_event, token_event

text = {TEXT!r}
events = [*(token_event(char) for char in text), finish_event(text)]  # no token holds a whole sequence
call = Call(prompt="", sampling=aici.SamplingParams(), constraint=None)
stream_text(Stream(FakeBackend(events), call, "", UNCONSTRAINED))
print("END")
"""


def test_a_terminal_shows_control_characters() -> None:
    with at_terminal([sys.executable, "-c", PROGRAM]) as terminal:
        shown = terminal.until("END")
        assert terminal.wait() == 0
    assert shown.replace("\r\n", "\n") == f"a\tb\n{SHOWN}\nEND"


def test_a_pipe_gets_the_text_as_it_is() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, timeout=100, check=True)
    assert done.stdout.decode() == f"{TEXT}END\n"


def test_an_error_holds_no_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    print_error(UsageError("two\nlines \x1b[2J", hint="a \x9b hint"))
    assert capsys.readouterr().err == "error: two\nlines \\x1b[2J\n hint: a \\x9b hint\n"
