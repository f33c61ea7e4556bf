"""`aici chat`: a conversation with a model, at a terminal or over a pipe."""

from dataclasses import replace
from typing import Annotated, Any

import typer

from aici_base.errors import AiciError, UsageError
from aici_cli.chat.commands import run_command
from aici_cli.chat.lines import is_terminal, messages, piped_line, typed_lines
from aici_cli.chat.session import Session
from aici_cli.constraint import Flags, constraint_from, with_constraint_flags
from aici_cli.files import check_utf8
from aici_cli.model_flags import ModelFlags, with_model_flags
from aici_cli.output import print_error, say
from aici_cli.sampling_flags import with_sampling_flags
from aici_cli.waiting import waiting


@with_constraint_flags
@with_sampling_flags
@with_model_flags
def chat(
    model: Any = None,
    system: Annotated[str, typer.Option(metavar="<str>", help="The system prompt.")] = "",
    constraint: Any = None,
    schema_options: Any = None,
    sampling: Any = None,
    history: Annotated[bool, typer.Option(help="Keep the typed lines for the next chat.")] = True,
) -> None:
    """Talk to a model: a line is a message, /help lists the commands.

    Ctrl-C stops an answer, Ctrl-D ends the chat. Over a pipe, every line of stdin is a message or a command, and every
    answer is a line of stdout.
    """
    opening: ModelFlags = model
    flags: Flags = replace(constraint, schema_options=schema_options)
    with waiting("loading ..."):
        opening.check()
        if sampling["logprobs"] is not None:
            raise UsageError("a chat prints no log-probabilities", hint="leave --logprobs out")
        for text, what in ((system, "--system"), *((each, "--stop") for each in sampling["stop"])):
            check_utf8(text, what)
        control = constraint_from(flags, on_server=opening.server is not None)
        llm = opening.open(controllers=True)
    with llm:
        session = Session(llm, sampling, flags, control, on_server=opening.server is not None)
        session.dialogue.system = system
        if is_terminal():
            say(f"{llm.model}: a line is a message, /help lists the commands, Ctrl-D ends")
            with typed_lines(lambda: session.prompt, keep=history) as read:
                for message in messages(read, interruptible=True):
                    _handle_at_terminal(session, message)
        else:
            for message in messages(piped_line, interruptible=False):
                _handle(session, message)


def _handle(session: Session, message: str) -> None:
    check_utf8(message, "the message")
    if message.startswith("/") and not message.startswith("//"):
        run_command(session, message)
    else:
        session.ask(message.removeprefix("/"))


def _handle_at_terminal(session: Session, message: str) -> None:
    try:
        _handle(session, message)
    except AiciError as error:
        print_error(error)
    except KeyboardInterrupt:
        print()  # it came before an answer had begun
