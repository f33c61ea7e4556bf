"""The flags of sampling parameters, made from the table in `aici_engine.sampling_params`."""

import functools
import inspect
from collections.abc import Callable
from typing import Annotated, Any

import typer

from aici_engine.parameter import SAME, Parameter
from aici_engine.sampling_params import PARAMETERS

_ARGUMENT = "sampling"


def with_sampling_flags(command: Callable[..., None]) -> Callable[..., None]:
    """Decorate a Typer command: the argument `sampling` becomes the flags of all parameters with a flag.

    The command receives a dict of the flags' values by parameter name, defaults included.
    """
    signature = inspect.signature(command, eval_str=True)
    flags = {name: _flag(parameter) for name, parameter in PARAMETERS.items() if parameter.flag is not None}

    @functools.wraps(command)
    def with_flags(**given: Any) -> None:
        sampling = {name: given.pop(name) for name in flags}
        command(**given, **{_ARGUMENT: {name: _value(value) for name, value in sampling.items()}})

    arguments: list[inspect.Parameter] = []
    for argument in signature.parameters.values():
        arguments += flags.values() if argument.name == _ARGUMENT else [argument]
    with_flags.__signature__ = signature.replace(parameters=arguments)  # type: ignore[attr-defined]
    with_flags.__annotations__ = {argument.name: argument.annotation for argument in arguments}
    return with_flags


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
