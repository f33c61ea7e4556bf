"""The constraint that the flags of `aici run` describe, checked before anything heavy is loaded."""

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from aici_base.errors import NotFoundError, UsageError
from aici_cli.files import MAX_TEXT_BYTES, check_utf8, read_text
from aici_cli.flag_groups import Command, with_flags_of
from aici_cli.grammar import read_grammar
from aici_cli.output import say
from aici_cli.schema_flags import with_schema_flags
from aici_controllers.notations.tree import GrammarSyntax
from aici_controllers.schema_check import SchemaKeywords

if TYPE_CHECKING:
    import aici


@dataclass(frozen=True, slots=True, kw_only=True)
class Flags:
    """The flags of a constraint as the user gave them. None or empty: the flag was not given.

    `schema_options` has flags of its own: `with_schema_flags`.
    """

    regex: Annotated[str | None, typer.Option(help="The whole output matches this regular expression.")] = None
    grammar: Annotated[
        str | None,
        typer.Option(
            help="The whole output is a sentence of this grammar: a file in Lark, GBNF or yacc's notation (.y), or a"
            " shipped grammar's name."
        ),
    ] = None
    grammar_syntax: Annotated[
        GrammarSyntax | None,
        typer.Option(help="The notation of the grammar (default: as the extension, or else the text, has it)."),
    ] = None
    json_schema: Annotated[
        str | None, typer.Option(help="The whole output is JSON under this schema: a file, or the schema's text.")
    ] = None
    structural_tag: Annotated[
        str | None,
        typer.Option(
            help="The output is free text with constrained tags in it: a structural tag, as a file or as JSON text."
        ),
    ] = None
    choice: Annotated[
        list[str] | None, typer.Option(metavar="<str>", help="The whole output is this text; repeat for more choices.")
    ] = None
    choices: Annotated[Path | None, typer.Option(help="The whole output is a line of this file.")] = None
    substring: Annotated[Path | None, typer.Option(help="The whole output is a run of words of this file.")] = None
    controller: Annotated[str | None, typer.Option(help="A controller: FILE.wasm, a name, a tag or an id.")] = None
    controller_arg: Annotated[str | None, typer.Option(help="The controller's argument: text, or @FILE.")] = None
    schema_options: SchemaKeywords = field(default_factory=SchemaKeywords)


def with_constraint_flags(command: Command) -> Command:
    """Decorate a Typer command: the arguments `constraint` and `schema_options` become the flags of a constraint."""
    return with_schema_flags(with_flags_of("constraint", Flags)(command))


def constraint_from(flags: Flags, *, on_server: bool = False) -> "aici.Constraint[Any] | None":
    """Return the constraint, or None if no flag constrains the output.

    Raise UsageError for flags that exclude each other, and for a wrong value. With `on_server`, the controller's name
    may be one that only the server knows.
    """
    given = given_kinds(flags)
    if len(given) > 1:
        raise UsageError(f"{' and '.join(given)} exclude each other: each is a constraint on the whole output")
    if flags.controller_arg is not None and flags.controller is None:
        raise UsageError("--controller-arg needs --controller", hint="name FILE.wasm or a shipped controller")
    if flags.grammar_syntax is not None and flags.grammar is None:
        raise UsageError("--grammar-syntax goes with --grammar")
    if flags.json_schema is None and flags.structural_tag is None and flags.schema_options:
        options = " and ".join(f"--{name.replace('_', '-')}" for name in flags.schema_options)
        raise UsageError(f"{options} without --json-schema", hint="give a schema, or leave it out")
    if flags.controller is not None:
        return _controller(flags.controller, flags.controller_arg or "", on_server=on_server)
    return None if not given else _told(_built_in(flags))


def given_kinds(flags: Flags) -> list[str]:
    """Return the flags that each constrain the whole output: `--regex`, for example."""
    kinds = {
        "--regex": flags.regex is not None,
        "--grammar": flags.grammar is not None,
        "--json-schema": flags.json_schema is not None,
        "--structural-tag": flags.structural_tag is not None,
        "--choice": bool(flags.choice) or flags.choices is not None,
        "--substring": flags.substring is not None,
        "--controller": flags.controller is not None,
    }
    return [kind for kind, is_given in kinds.items() if is_given]


def script_constraint(guest: str, program: str, *, on_server: bool) -> "aici.Constraint[Any]":
    """Return the constraint of a program for `guest`, a shipped controller that runs programs."""
    return _named(guest, program, on_server=on_server)


def _told(constraint: "aici.Constraint[Any]") -> "aici.Constraint[Any]":
    for warning in constraint.warnings:
        say(f"note: {warning}")
    return constraint


def _built_in(flags: Flags) -> "aici.Constraint[Any]":
    import aici

    if flags.regex is not None:
        check_utf8(flags.regex, "--regex")
        return aici.regex(flags.regex)
    if flags.grammar is not None:
        name, text = read_grammar(flags.grammar)
        # A Lark file may import from the files beside it.
        source = Path(name) if name.endswith(".lark") else text
        return aici.grammar(source, name=name, syntax=flags.grammar_syntax)
    if flags.json_schema is not None:
        schema = schema_text(flags.json_schema, "--json-schema")
        return aici.json_schema(schema, **flags.schema_options)
    if flags.structural_tag is not None:
        return aici.structural_tag(_tag_text(flags.structural_tag), **flags.schema_options)
    if flags.substring is not None:
        text = read_text(flags.substring, "--substring", MAX_TEXT_BYTES)
        # The end of the last line is no part of the last word.
        return aici.substring(text.removesuffix("\n").removesuffix("\r"))
    for choice in flags.choice or ():
        check_utf8(choice, "--choice")
    return aici.choice(*(flags.choice or ()), *_lines(flags.choices))


def schema_text(given: str, name: str) -> str:
    """Return a schema's text: an object, `true` or `false` stands for itself, anything else names a file. `name` is the
    argument's, for messages."""
    if given.lstrip().startswith("{") or given.strip() in {"true", "false"}:
        check_utf8(given, name)
        return given
    if given.lstrip()[:1] in ("[", '"') and not os.path.exists(given):
        raise UsageError(f"{name} {given}: a schema is an object, true or false", hint="give one, or a file")
    return read_text(Path(given), name, MAX_TEXT_BYTES)


def _tag_text(given: str) -> str:
    """Return a structural tag's text: an object stands for itself, anything else names a file."""
    if given.lstrip().startswith("{"):
        check_utf8(given, "--structural-tag")
        return given
    return read_text(Path(given), "--structural-tag", MAX_TEXT_BYTES)


def _lines(path: Path | None) -> list[str]:
    if path is None:
        return []
    # Not splitlines(), which also splits at U+2028 and other characters.
    lines = read_text(path, "--choices", MAX_TEXT_BYTES).split("\n")
    return [line for line in (line.removesuffix("\r") for line in lines) if line]


def _controller(controller: str, argument: str, *, on_server: bool) -> "aici.Constraint[Any]":
    if argument.startswith("@"):
        argument = read_text(Path(argument[1:]), f"--controller-arg {argument}", MAX_TEXT_BYTES)
    check_utf8(argument, "--controller-arg")
    return _named(controller, argument, on_server=on_server)


def _named(controller: str, argument: str, *, on_server: bool) -> "aici.Constraint[Any]":
    import aici

    constraint = aici.controller(controller, argument)
    if not on_server and isinstance(constraint.controller, str):
        _check_known(constraint.controller)
    return _told(constraint)


def _check_known(name: str) -> None:
    """Raise NotFoundError unless a controller ships under `name`, or this machine's store has it."""
    from aici_controllers.catalog import SHIPPED, guest_path
    from aici_controllers.store import Store

    if name in SHIPPED:
        guest_path(name)
        return
    try:
        Store().resolve(name)
    except NotFoundError as error:
        guest_path("regex")  # if no controller was built, the user must hear of that first
        raise NotFoundError(f"no controller is called {name!r}", hint=error.hint, cli_hint=error.cli_hint) from error
