"""The commands of a chat: lines that begin with a slash."""

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from aici_base.errors import UsageError
from aici_cli.chat.dialogue import load, save
from aici_cli.constraint import Flags
from aici_cli.output import say

if TYPE_CHECKING:
    from aici_cli.chat.session import Session


@dataclass(frozen=True, slots=True)
class ChatCommand:
    """`argument` is what the command takes, empty for nothing, in brackets if the argument may be left out."""

    argument: str
    help: str
    run: "Callable[[Session, str], None]"


def run_command(session: "Session", line: str) -> None:
    """Run `/NAME ARGUMENT`. Raise UsageError for an unknown command, and for an argument that is wrong or missing."""
    name, _, argument = line.removeprefix("/").strip().partition(" ")
    argument = argument.strip()
    command = COMMANDS.get(name)
    if command is None:
        near = difflib.get_close_matches(name, COMMANDS, n=1)
        meant = f"/{near[0]} is one" if near else "/help lists the commands"
        raise UsageError(f"no command is called /{name}", hint=f"{meant}; write // to begin a message with /")
    if argument and not command.argument:
        raise UsageError(f"/{name} takes nothing", hint=command.help)
    if not argument and command.argument and not command.argument.startswith("["):
        raise UsageError(f"/{name} takes {command.argument}", hint=command.help)
    command.run(session, argument)


def _system(session: "Session", text: str) -> None:
    session.dialogue.system = text
    say("the system prompt is set" if text else "there is no system prompt")


def _save(session: "Session", name: str) -> None:
    save(session.dialogue, Path(name))
    say(f"saved {_count(session)}")


def _load(session: "Session", name: str) -> None:
    session.dialogue = load(Path(name))
    say(f"loaded {_count(session)}")


def _clear(session: "Session", _: str) -> None:
    session.dialogue.turns = ()
    say("the conversation is empty")


def _retry(session: "Session", given: str) -> None:
    try:
        temperature = float(given) if given else None
    except ValueError as error:
        raise UsageError(f"{given} is no temperature", hint="/retry 0.8") from error
    session.retry(temperature)


def _count(session: "Session") -> str:
    number = len(session.dialogue.messages())
    return f"{number} message{'s' * (number != 1)}"


def _help(_: "Session", __: str) -> None:
    shown = {f"/{name} {command.argument}": command.help for name, command in COMMANDS.items()}
    width = max(map(len, shown))
    for usage, text in shown.items():
        print(f"{usage:<{width}}  {text}")
    print(
        'A line that ends with \\ goes on in the next line; """ begins and ends a message of several lines. '
        "Ctrl-D ends the chat.",
        flush=True,
    )


COMMANDS: Final[Mapping[str, ChatCommand]] = {
    "regex": ChatCommand(
        "PATTERN", "Answers match this regular expression.", lambda session, text: session.constrain(Flags(regex=text))
    ),
    "schema": ChatCommand(
        "FILE|{...}",
        "Answers are JSON under this schema.",
        lambda session, text: session.constrain_schema(text),
    ),
    "grammar": ChatCommand(
        "NAME|FILE",
        "Answers are sentences of this grammar.",
        lambda session, text: session.constrain(Flags(grammar=text)),
    ),
    "none": ChatCommand("", "Answers are free again.", lambda session, _: session.constrain(Flags())),
    "system": ChatCommand("[TEXT]", "Set the system prompt, or remove it.", _system),
    "retry": ChatCommand("[TEMPERATURE]", "Answer the last message again.", _retry),
    "clear": ChatCommand("", "Forget the messages.", _clear),
    "save": ChatCommand("FILE", "Write the conversation to a file, as JSON.", _save),
    "load": ChatCommand("FILE", "Go on with a conversation from a file.", _load),
    "help": ChatCommand("", "Show the commands.", _help),
}
