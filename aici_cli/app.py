"""The tree of commands. `aici --help` imports no command; a command imports heavy packages inside functions."""

import os
import sys
from typing import Annotated, Any, Final

import typer
from typer.main import get_command

from aici_cli.lazy_group import LazyCommand, LazyGroup

COMMANDS: Final = {
    "run": LazyCommand(
        "aici_cli.run:run", "Continue a prompt, under a constraint if given, or run a script that controls the text."
    ),
    "batch": LazyCommand(
        "aici_cli.batch:batch",
        "Answer a file of requests, as OpenAI's batches have them. Run the same command again to go on after an end.",
    ),
    "chat": LazyCommand("aici_cli.chat:chat", "Talk to a model: a line is a message, /help lists the commands."),
    "serve": LazyCommand(
        "aici_cli.serve:serve", "Serve models: OpenAI, Anthropic, AICI REST and LMTP, until Ctrl-C or SIGTERM."
    ),
    "stage": LazyCommand(
        "aici_cli.stage:stage", "Compute a range of layers for `aici serve --stages`, until Ctrl-C or SIGTERM."
    ),
    "engine": LazyCommand(
        "aici_cli.engine:engine", "Run an engine for `aici serve --engines`, until Ctrl-C or SIGTERM."
    ),
    "lmtp": LazyCommand(
        "aici_cli.lmtp:lmtp",
        "Talk to a model by LMTP. A line is a prompt, then parameters: Hello there temperature=1.2",
    ),
    "rt": LazyCommand(
        "aici_cli.rt:rt",
        "Run the controller runtime (engines start one), or `rt replay` a recording; `rt --help` lists the flags.",
    ),
    "doctor": LazyCommand("aici_cli.doctor:doctor", "Check this machine; exit with 1 if aici cannot run models."),
    "models": LazyCommand("aici_cli.models:app", "Fetch, list, find and remove models."),
    "config": LazyCommand("aici_cli.config:app", "Show the settings of options."),
    "ctrl": LazyCommand("aici_cli.ctrl:app", "Write, build, test and store your own controllers, here or on a server."),
    "bench": LazyCommand("aici_cli.bench:app", "Measure speed, memory and quality on this machine."),
    "grammar": LazyCommand("aici_cli.grammar:app", "Check grammars, and test texts against a grammar."),
    "schema": LazyCommand("aici_cli.schema:app", "Check JSON Schemas, and test texts against a schema."),
    "cluster": LazyCommand("aici_cli.cluster:app", "Run one model over several machines."),
    "node": LazyCommand("aici_cli.node:app", "Make this machine a part of a cluster."),
}
"""The commands in the order of the help. A test compares the summaries with the commands' own."""

app = typer.Typer(
    name="aici",
    cls=LazyGroup,
    help="A program in control of every token that a language model produces.",
    no_args_is_help=True,
    add_completion=False,  # completions/ has static scripts, installed for the shells
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(f"aici {version('aici')}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_version,
            is_eager=True,
            allow_from_autoenv=False,
            help="Print the version and exit.",
        ),
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """A program in control of every token that a language model produces."""


def command_tree() -> Any:
    """Return the commands as Typer runs them. The module of a command is imported when the command is asked for.

    Every option has an environment variable, `AICI_COMMAND_OPTION`. Help shows only variables with another name.
    """
    root = get_command(app)
    assert isinstance(root, LazyGroup)
    _prepare(root)
    root.put_off(COMMANDS, _prepare)
    return root


def _prepare(command: Any) -> None:
    for parameter in command.params:
        if parameter.param_type_name == "option" and parameter.envvar is None:
            parameter.show_envvar = False
    if sys.stdout.isatty() and os.environ.get("TERM") != "dumb":
        _show_by_rich(command)


def _show_by_rich(command: Any) -> None:
    """Let rich print the help of a command. Brackets in help are no markup."""
    command.rich_markup_mode = "rich"
    command.help = command.help and command.help.replace("[", "\\[")
    for parameter in command.params:
        if getattr(parameter, "help", None):
            parameter.help = parameter.help.replace("[", "\\[")
