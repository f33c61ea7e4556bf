"""The flags that say how a schema is read: `SchemaOptions` on the command line."""

import inspect
from dataclasses import replace
from typing import Annotated, Any, get_type_hints

import typer

from aici_cli.flag_groups import Command, with_flags
from aici_controllers.schema_check import SchemaKeywords, SchemaOptions

_HELP = {
    "whitespace": "White space in the JSON. spaced (the default): one space after : and comma; compact: at most one"
    " space there; none: no white space; flexible: newlines and indentation, too.",
    "lenient": "Drop keywords of the schema that are known and not supported, with a note.",
    "strict_schema": "Refuse unknown keywords and formats of the schema, which otherwise constrain nothing.",
    "objects": "Objects of a schema with properties. closed (the default): no further keys, unless the schema speaks of"
    " them; open: further keys, as the specification has it.",
    "property_order": "Order of the keys. declared (the default): as the schema declares them; any: every order.",
}


def with_schema_flags(command: Command) -> Command:
    """Decorate a Typer command: the argument `schema_options` becomes the flags of all fields of SchemaOptions.

    The command receives a dict of the flags that the user gave, by field name.
    """
    flags = [_flag(name, kind) for name, kind in get_type_hints(SchemaOptions).items()]
    collect = lambda values: {name: value for name, value in values.items() if value not in (None, False)}  # noqa: E731
    return with_flags("schema_options", flags, collect)(command)


def options_of(given: SchemaKeywords) -> SchemaOptions:
    """Return the options of the flags that the user gave."""
    from aici_controllers.constraints import SPACED

    return replace(SPACED, **given)


def _flag(name: str, kind: Any) -> inspect.Parameter:
    option = f"--{name.replace('_', '-')}"
    default, annotation = (
        (False, Annotated[bool, typer.Option(option, help=_HELP[name])])
        if kind is bool
        else (None, Annotated[kind | None, typer.Option(option, help=_HELP[name])])
    )
    return inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=default, annotation=annotation)
