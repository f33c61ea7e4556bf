"""The flags of sampling parameters, made from the table in `aici_engine.sampling_params`."""

import inspect
from typing import Annotated, Any

import typer

from aici_cli.flag_groups import Command, with_flags
from aici_engine.parameter import SAME, Parameter
from aici_engine.sampling_params import PARAMETERS


def with_sampling_flags(command: Command) -> Command:
    """Decorate a Typer command: the argument `sampling` becomes the flags of all parameters with a flag.

    The command receives a dict of the flags' values by parameter name, defaults included.
    """
    flags = [_flag(parameter) for parameter in PARAMETERS.values() if parameter.flag is not None]
    collect = lambda values: {name: _value(value) for name, value in values.items()}  # noqa: E731
    return with_flags("sampling", flags, collect)(command)


def _flag(parameter: Parameter) -> inspect.Parameter:
    flag = parameter.flag
    assert flag is not None
    default: Any = parameter.default if flag.default is SAME else flag.default
    if isinstance(default, tuple):
        default = list(default)
    kinds: dict[str, Any] = {"number": float, "whole number": int, "flag": bool, "texts": list[str]}
    kind = kinds[parameter.kind] | None if parameter.optional else kinds[parameter.kind]
    minimum = {} if flag.ge is None else {"min": flag.ge}
    option = typer.Option(help=flag.help or parameter.help, metavar=flag.metavar, **minimum)  # type: ignore[arg-type]
    annotation = Annotated[kind, option]  # type: ignore[valid-type]  # made from the table
    return inspect.Parameter(
        parameter.name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=default, annotation=annotation
    )


def _value(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value
