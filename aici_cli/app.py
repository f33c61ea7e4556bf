"""The tree of commands. Command modules import heavy packages only inside functions, so that `--help` is fast."""

import os
import sys
from typing import Annotated, Any

import typer
from typer.main import get_command

from aici_cli import (
    batch,
    bench,
    chat,
    cluster,
    config,
    ctrl,
    doctor,
    grammar,
    lmtp,
    models,
    node,
    rt,
    run,
    schema,
    serve,
    stage,
)

app = typer.Typer(
    name="aici",
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


app.command(name="run")(run.run)
app.command(name="batch")(batch.batch)
app.command(name="chat")(chat.chat)
app.command(name="serve")(serve.serve)
app.command(name="stage")(stage.stage)
app.command(name="lmtp")(lmtp.lmtp)
app.command(name="rt", **rt.PASS_THROUGH)(rt.rt)
app.command(name="doctor")(doctor.doctor)
app.add_typer(models.app, name="models")
app.add_typer(config.app, name="config")
app.add_typer(ctrl.app, name="ctrl")
app.add_typer(bench.app, name="bench")
app.add_typer(grammar.app, name="grammar")
app.add_typer(schema.app, name="schema")
app.add_typer(cluster.app, name="cluster")
app.add_typer(node.app, name="node")


def command_tree() -> Any:
    """Return the commands as Typer runs them.

    Every option has an environment variable, `AICI_COMMAND_OPTION`. Help shows only variables with another name.
    """
    root = get_command(app)
    waiting = [root]
    while waiting:
        command: Any = waiting.pop()
        waiting += getattr(command, "commands", {}).values()
        for parameter in command.params:
            if parameter.param_type_name == "option" and parameter.envvar is None:
                parameter.show_envvar = False
        if sys.stdout.isatty() and os.environ.get("TERM") != "dumb":
            _show_by_rich(command)
    return root


def _show_by_rich(command: Any) -> None:
    """Let rich print the help of a command. Brackets in help are no markup."""
    command.rich_markup_mode = "rich"
    command.help = command.help and command.help.replace("[", "\\[")
    for parameter in command.params:
        if getattr(parameter, "help", None):
            parameter.help = parameter.help.replace("[", "\\[")
