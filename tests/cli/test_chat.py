"""`aici chat` without a model: messages of lines, commands, files, and failures. tests/e2e/test_chat.py has a model."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

import aici
from aici.backend import Call
from aici.constraints import UNCONSTRAINED
from aici.stream import Stream
from aici_base.errors import AiciError, UsageError
from aici_cli.chat.commands import COMMANDS, run_command
from aici_cli.chat.dialogue import Dialogue, load, message, save
from aici_cli.chat.lines import messages
from aici_cli.chat.session import RETRY_TEMPERATURE, Session
from aici_cli.constraint import Flags
from aici_engine.events import FinishReason
from tests.support.fake_backend import FakeBackend, finish_event, token_event

SAMPLING: Mapping[str, Any] = {"temperature": 0.0, "seed": None, "max_tokens": None}


class FakeModel:
    """Answers every conversation with `answer`, or fails with it."""

    def __init__(self, answer: str | AiciError) -> None:
        events = [answer] if isinstance(answer, AiciError) else [token_event(answer), finish_event(answer)]
        self.backend = FakeBackend(events)

    def chat_stream(self, told: Sequence[Any], constraint: Any, **sampling: Any) -> Stream[Any]:
        call = Call(prompt=list(told), sampling=aici.SamplingParams(**sampling), constraint=constraint)
        return Stream(self.backend, call, call.prompt, constraint or UNCONSTRAINED)  # type: ignore[arg-type]


def session_over(model: FakeModel, **sampling: Any) -> Session:
    return Session(cast("aici.LLM", model), {**SAMPLING, **sampling}, Flags(), None, on_server=False)


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (["one", "", "  ", "two"], ["one", "two"]),
        (["one\\", "  two\\", "three", "four"], ["one\n  two\nthree", "four"]),
        (['"""', "one", "", ' two"""', "three"], ["one\n\n two", "three"]),
        (['"""one', '"""'], ["one"]),
        (['"""one"""', "two"], ["one", "two"]),
        (['"""', '"""', "two"], ["two"]),
        (['"""one', "two"], ["one\ntwo"]),
        (["one\\"], ["one"]),
        ([], []),
    ],
)
def test_messages_of_lines(lines: list[str], said: list[str]) -> None:
    left = iter(lines)

    def read(continued: bool) -> str:
        try:
            return next(left)
        except StopIteration:
            raise EOFError from None

    assert list(messages(read, interruptible=False)) == said


def test_ctrl_c_drops_the_typed_lines_at_a_terminal_and_ends_a_pipe() -> None:
    def reader() -> Any:
        script = iter(["half\\", KeyboardInterrupt, "whole"])

        def read(continued: bool) -> str:
            step = next(script, EOFError)
            if isinstance(step, str):
                return step
            raise step

        return read

    assert list(messages(reader(), interruptible=True)) == ["whole"]
    with pytest.raises(KeyboardInterrupt):
        list(messages(reader(), interruptible=False))


def test_a_conversation_is_sent_whole(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    model = FakeModel("fine")
    session = session_over(model)
    run_command(session, "/system Be brief.")
    session.ask("How are you?")
    session.ask("And now?")
    assert capfdbinary.readouterr().out == b"fine\nfine\n"
    assert model.backend.calls[-1].prompt == [
        message("system", "Be brief."),
        message("user", "How are you?"),
        message("assistant", "fine"),
        message("user", "And now?"),
    ]
    run_command(session, "/system")
    run_command(session, "/clear")
    session.ask("Who?")
    assert model.backend.calls[-1].prompt == [message("user", "Who?")]


def test_retry_answers_the_same_question_another_way() -> None:
    model = FakeModel("fine")
    session = session_over(model, seed=7)
    with pytest.raises(UsageError, match="no message"):
        run_command(session, "/retry")
    session.ask("How are you?")
    run_command(session, "/retry")
    run_command(session, "/retry 0.3")
    first, second, third = model.backend.calls
    assert first.prompt == second.prompt == third.prompt
    assert [call.sampling.seed for call in (first, second, third)] == [7, 8, 9]
    assert [call.sampling.temperature for call in (second, third)] == [RETRY_TEMPERATURE, 0.3]
    assert len(session.dialogue.turns) == 2


def test_a_failed_answer_leaves_the_conversation_as_it_was() -> None:
    session = session_over(FakeModel(UsageError("too long")))
    session.dialogue.turns = before = [message("user", "a"), message("assistant", "b")]
    with pytest.raises(UsageError, match="too long"):
        session.ask("c")
    with pytest.raises(UsageError, match="too long"):
        run_command(session, "/retry")
    assert session.dialogue.turns == before


def test_constraints_by_command(tmp_path: Path) -> None:
    model = FakeModel("12")
    session = session_over(model)
    for line, prompt, controller in (
        ("/regex [0-9]+", "regex >>> ", "regex"),
        ('/schema {"type": "integer"}', "json-schema >>> ", "json_schema"),
        ("/grammar json", "grammar >>> ", "grammar"),
        ("/none", ">>> ", None),
    ):
        run_command(session, line)
        session.ask("How many?")
        constraint = model.backend.calls[-1].constraint
        assert (session.prompt, constraint and constraint.controller) == (prompt, controller)


@pytest.mark.parametrize(
    ("line", "said", "hint"),
    [
        ("/regexp a", "no command is called /regexp", "/regex is one"),
        ("/", "no command is called /", "/help"),
        ("/none of these", "/none takes nothing", "free"),
        ("/regex", "/regex takes PATTERN", "regular expression"),
        ("/regex (", "", ""),
        ("/schema {", "", ""),
        ("/grammar no-such-grammar", "no-such-grammar", ""),
        ("/load /no/such/file", "/no/such/file", ""),
        ("/retry warm", "warm is no temperature", ""),
    ],
)
def test_wrong_commands_say_what_to_do(line: str, said: str, hint: str) -> None:
    session = session_over(FakeModel("fine"))
    with pytest.raises(AiciError) as error:
        run_command(session, line)
    assert said in error.value.message
    assert hint in error.value.hint_for("cli")
    assert session.prompt == ">>> "


def test_help_shows_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    run_command(session_over(FakeModel("")), "/help")
    shown = capsys.readouterr().out
    assert all(f"/{name} " in shown and command.help in shown for name, command in COMMANDS.items())


def test_a_saved_chat_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "chat.json"
    said = Dialogue("Be brief.", [message("user", "größer?"), message("assistant", "ja")])
    for _ in range(2):  # the second time, the file is there
        save(said, path)
    assert load(path) == said
    path.write_text(json.dumps(said.messages()[1:]))
    assert load(path) == Dialogue("", said.turns)


@pytest.mark.parametrize(
    "text", ["", "{}", "3", '{"messages": [{"role": "user"}]}', '[{"role": "tool", "content": "x"}]', "[1]", "é"]
)
def test_what_is_no_saved_chat_is_neither_loaded_nor_replaced(text: str, tmp_path: Path) -> None:
    path = tmp_path / "notes"
    path.write_text(text, encoding="latin-1")
    with pytest.raises(UsageError):
        load(path)
    with pytest.raises(UsageError, match="no saved chat"):
        save(Dialogue(), path)
    assert path.read_text(encoding="latin-1") == text


def test_a_cut_answer_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    model = FakeModel("")
    model.backend = FakeBackend([token_event("a b"), finish_event("a b", reason=FinishReason.LENGTH)])
    session_over(model).ask("c")
    assert "--max-tokens" in capsys.readouterr().err
