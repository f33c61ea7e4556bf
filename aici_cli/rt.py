"""`aici rt`: the controller runtime as its own process. Its flags are those of `aicirt`, which is the same program."""

from typing import Any

import typer

PASS_THROUGH: dict[str, Any] = {
    "context_settings": {"ignore_unknown_options": True, "allow_extra_args": True},
    "add_help_option": False,
}


def rt(context: typer.Context) -> None:
    """Run the controller runtime, which engines start, or `rt replay` a recording; `rt --help` lists its flags."""
    from aici_runtime.main import main

    raise typer.Exit(main(context.args))
