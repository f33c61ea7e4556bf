"""Groups of flags that several commands share: one argument of a command becomes the flags of a group."""

import dataclasses
import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, get_type_hints

Command = Callable[..., None]


def with_flags(
    argument: str, flags: Sequence[inspect.Parameter], collect: Callable[[Mapping[str, Any]], object]
) -> Callable[[Command], Command]:
    """Return a decorator of Typer commands that puts `flags` in the place of the argument called `argument`.

    The command receives `collect(values)`: the values of the flags by name, defaults included.
    """

    def decorate(command: Command) -> Command:
        signature = inspect.signature(command, eval_str=True)

        @functools.wraps(command)
        def with_group(**given: Any) -> None:
            values = {flag.name: given.pop(flag.name) for flag in flags}
            command(**given, **{argument: collect(values)})

        arguments: list[inspect.Parameter] = []
        for each in signature.parameters.values():
            arguments += flags if each.name == argument else [each]
        with_group.__signature__ = signature.replace(parameters=arguments)  # type: ignore[attr-defined]
        with_group.__annotations__ = {each.name: each.annotation for each in arguments}
        return with_group

    return decorate


def with_flags_of(argument: str, group: type) -> Callable[[Command], Command]:
    """Return a decorator as `with_flags` does. The flags are the fields of the dataclass `group` whose types are
    annotated with an option, and the command receives an instance."""
    hints = get_type_hints(group, include_extras=True)
    flags = [
        inspect.Parameter(
            field.name,
            inspect.Parameter.POSITIONAL_OR_KEYWORD,
            default=field.default,
            annotation=hints[field.name],
        )
        for field in dataclasses.fields(group)
        if hasattr(hints[field.name], "__metadata__")
    ]

    return with_flags(argument, flags, lambda values: group(**values))
