"""`aici schema`: check JSON Schemas, and test texts against a schema."""

import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from aici_base.errors import UsageError
from aici_cli.constraint import schema_text
from aici_cli.files import MAX_TEXT_BYTES, read_text
from aici_cli.output import print_json
from aici_cli.schema_flags import options_of, with_schema_flags

if TYPE_CHECKING:
    from aici_controllers.schema_check import SchemaReport

app = typer.Typer(
    help="Check JSON Schemas, and test texts against a schema.", no_args_is_help=True, rich_markup_mode=None
)

_AROUND = 40

Schema = Annotated[str, typer.Argument(metavar="SCHEMA", help="A file, - for stdin, or the schema's text.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command()
@with_schema_flags
def check(schema: Schema, schema_options: Any = None, json: Json = False) -> None:
    """Report what cannot be honoured in a schema, and what is not enforced; exit with 1 on errors."""
    from aici_controllers.schema_check import check_schema

    report = check_schema(schema_text(schema, "the schema"), options=options_of(schema_options))
    if json:
        problems, warnings = ([asdict(each) for each in part] for part in (report.problems, report.warnings))
        print_json({"ok": not problems, "problems": problems, "warnings": warnings})
    else:
        _say(report)
        if not report.problems:
            print(_summary(len(report.warnings)))
    if report.problems:
        raise typer.Exit(1)


@app.command()
@with_schema_flags
def accepts(
    schema: Schema,
    input_: Annotated[str, typer.Argument(metavar="INPUT", help="A file, or - for stdin.")],
    schema_options: Any = None,
    json: Json = False,
) -> None:
    """Test whether a text could be generated under a schema; if not, print the position, and exit with 1."""
    from aici_controllers.schema_check import check_schema

    if schema == input_ == "-":
        raise UsageError("the schema and the input cannot both be on stdin")
    text = read_text(Path(input_), "the input", MAX_TEXT_BYTES).removesuffix("\n").removesuffix("\r")
    document = schema_text(schema, "the schema")
    report = check_schema(document, [text], options_of(schema_options))
    if report.problems:
        _say(report)
        raise typer.Exit(1)
    [at] = report.texts
    if json:
        print_json({"accepted": at is None, "at": at})
    else:
        print("accepted" if at is None else _refusal(text.encode(), at))
        if at is not None and "whitespace" not in schema_options:
            options = replace(options_of(schema_options), whitespace="flexible")
            [other] = check_schema(document, [text], options).texts
            if other is None:
                print(" hint: only white space is wrong: --whitespace flexible accepts the text", file=sys.stderr)
    if at is not None:
        raise typer.Exit(1)


def _summary(num_warnings: int) -> str:
    return f"ok, {num_warnings} warning{'s' * (num_warnings > 1)}" if num_warnings else "ok"


def _say(report: "SchemaReport") -> None:
    for problem in report.problems:
        print(problem.show(), file=sys.stderr)
    for warning in report.warnings:
        print(warning.show_warning(), file=sys.stderr)


def _refusal(text: bytes, at: int) -> str:
    """Format a rejection: the position, and the text around it."""
    before, after = (part.decode(errors="replace") for part in (text[:at], text[at:]))
    line, column = before.count("\n") + 1, len(before.rpartition("\n")[2]) + 1
    found = f"unexpected {after[:20]!r}" if after else "unexpected end of the text"
    shown, rest = before.rpartition("\n")[2][-_AROUND:], after.partition("\n")[0][:_AROUND]
    return f"{line}:{column}: {found}\n  {shown}{rest}\n  {' ' * len(shown)}^"
