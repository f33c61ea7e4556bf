"""`aici rt`: the controller runtime as a process. `aicirt` is the same program with the same flags."""

from typing import Any

import typer

SETTINGS: dict[str, Any] = {
    "context_settings": {"ignore_unknown_options": True, "allow_extra_args": True},
    "add_help_option": False,
}


def rt(context: typer.Context) -> None:
    """Run the controller runtime (engines start one), or `rt replay` a recording; `rt --help` lists the flags."""
    from aici_runtime.main import main

    raise typer.Exit(main(context.args))
