"""Constraints on the generated text: each is a shipped controller with a checked argument.

Every function raises UsageError with a message for the user, made by the very parser that constrains generation.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from aici_base.errors import UsageError
from aici_controllers.ask_guest import ask
from aici_controllers.catalog import SCRIPT_GUESTS
from aici_controllers.check_cost import (
    costly_parts_of_grammar,
    costly_parts_of_pattern,
    costly_parts_of_schema,
    one_check,
)
from aici_controllers.grammar_check import check_grammar
from aici_controllers.notations.lark_imports import Load, no_files
from aici_controllers.notations.reading import read_tree
from aici_controllers.notations.schema_grammars import KEYWORD as GRAMMAR_KEYWORD
from aici_controllers.notations.tree import ExactText, GrammarSyntax, Ref, Rule, sequence
from aici_controllers.notations.y_writer import write_y
from aici_controllers.regex_check import check_regex
from aici_controllers.schema_check import (
    SchemaOptions,
    SchemaReport,
    check_schema,
    parse_report,
    schema_argument,
    schema_with_options,
)
from aici_controllers.structural_tag_check import check_schema_with_grammars, check_structural_tag
from aici_controllers.text_check import check_choices, check_substring

MAX_ARGUMENT_BYTES: Final = 4 << 20
"""Half of the largest message to the runtime: JSON may double the size."""

SPACED: Final = SchemaOptions(whitespace="spaced")
"""Fixed white space is forced together with the surrounding text. This is the white space that models write."""


_FLAGS: Final = re.compile(r"(?:\(\?[a-zA-Z]+\))*")
"""Flags for a whole pattern, which stand at its beginning."""

TRANSLATED: Final = {"structural_tag": "grammar"}
"""Names that stand for a shipped controller, which gets a translation of the argument."""


@dataclass(frozen=True, slots=True)
class Constraint:
    """The shipped controller `guest` with an `argument`. `warnings` say which parts of a schema are not enforced, and
    what is odd in a grammar."""

    guest: str
    argument: str
    warnings: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _check_size(self.argument)


@one_check("pattern", costly_parts_of_pattern)
def regex(pattern: str) -> Constraint:
    """Return the constraint that the whole text matches `pattern`."""
    _check_size(pattern)
    if problem := check_regex(pattern):
        raise UsageError(problem.shown, hint=_regex_hint(problem.message))
    return Constraint("regex", pattern)


def _regex_hint(message: str) -> str:
    if "not supported" in message:
        return "rewrite the pattern without it: classes, groups, |, counts, ^ $ and \\p{...} are supported"
    if "matches no text" in message:
        return "the pattern has to match the whole output, from the first character to the last"
    return ""


@one_check("grammar", costly_parts_of_grammar)
def grammar(
    text: str, *, name: str = "grammar", syntax: GrammarSyntax | None = None, load: Load = no_files
) -> Constraint:
    """Return the constraint that the whole text is a sentence of the grammar: Lark, GBNF, or the notation of yacc.

    `name` stands in messages. Its extension, or else the text, tells the notation, unless `syntax` does. `load` finds
    what a Lark file imports from the files beside it.
    """
    _check_size(text)
    _check_unicode(text, "grammar")
    report = check_grammar(text, name=name, syntax=syntax, load=load)
    if errors := [problem.show(name) for problem in report.problems if problem.severity == "error"]:
        reading = report.reading
        raise UsageError(
            "\n".join(errors),
            hint=f"{reading}; if not, set grammar_syntax to y, lark or gbnf" if reading else "",
            cli_hint=f"{reading}; if not, give --grammar-syntax y, lark or gbnf"
            if reading
            else "`aici grammar check` shows warnings too",
            python_hint=f"{reading}; if not, give syntax= y, lark or gbnf" if reading else "",
        )
    return Constraint("grammar", report.guest_text, tuple(problem.show(name) for problem in report.problems))


@one_check("schema", costly_parts_of_schema)
def json_schema(schema: str, options: SchemaOptions = SPACED) -> Constraint:
    """Return the constraint that the whole text is JSON under the schema, which is JSON text."""
    _check_size(schema)
    if GRAMMAR_KEYWORD in schema and _is_json(schema):
        report, guest_text = check_schema_with_grammars(schema, options)
        if report.problems:
            raise UsageError(_shown_problems(report))
        return Constraint("grammar", guest_text, _shown_warnings(report))
    report = check_schema(schema, options=options)
    if (report.problems or report.warnings) and (inner := _inner_schema(schema)):
        raise UsageError("this is no schema, but a description of a tool or format that holds one", hint=inner)
    if report.problems:
        helps = not options.lenient and not check_schema(schema, options=replace(options, lenient=True)).problems
        drops = "drops what cannot be honoured, and lists it"
        raise UsageError(
            _shown_problems(report),
            hint=f'"schema_options": {{"lenient": true}} {drops}' if helps else "",
            cli_hint=f"--lenient {drops}" if helps else "",
            python_hint=f"lenient=True {drops}" if helps else "",
        )
    return Constraint("json_schema", schema_argument(schema, options).decode(), _shown_warnings(report))


@one_check("schema", costly_parts_of_schema)
def json_schema_or(schema: str, text: str, options: SchemaOptions = SPACED) -> Constraint:
    """Return the constraint that the whole text is JSON under the schema, or is `text`."""
    checked = json_schema(schema, options)
    if checked.guest != "json_schema":
        raise UsageError(f"{GRAMMAR_KEYWORD} is possible without tools only", hint="leave out the tools or the grammar")
    rules = f"%%\nstart : {_json(text)} | %json {schema_with_options(json.loads(schema), options)} ;\n"
    return replace(grammar(rules, syntax="y"), warnings=checked.warnings)


def _shown_problems(report: SchemaReport) -> str:
    return "\n".join(problem.show() for problem in report.problems)


def _shown_warnings(report: SchemaReport) -> tuple[str, ...]:
    return tuple(warning.show_warning() for warning in report.warnings)


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _inner_schema(text: str) -> str | None:
    """Return the hint for a schema wrapped in an object of a chat API, or None for a plain schema."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return None
    match document:
        case {"type": "function", "function": {"parameters": dict()}}:
            where = "function.parameters"
        case {"type": "json_schema", "json_schema": {"schema": dict()}}:
            where = "json_schema.schema"
        case {"name": str(), "schema": dict()}:
            where = "schema"
        case {"name": str(), "input_schema": dict()}:
            where = "input_schema"
        case {"name": str(), "parameters": dict()}:
            where = "parameters"
        case _:
            return None
    return f"give the inner schema, which is at {where}"


@one_check("structural tag", costly_parts_of_schema)
def structural_tag(document: str, options: SchemaOptions = SPACED) -> Constraint:
    """Return the constraint of a structural tag, which is JSON text: free text, and tags with constrained content.

    The document is that of XGrammar, vLLM and SGLang, in both forms: `format`, or `structures` and `triggers`.
    `options`: how its schemas are read.
    """
    _check_size(document)
    _check_unicode(document, "structural tag")
    report = check_structural_tag(document, options)
    if report.problems:
        raise UsageError("\n".join(problem.show() for problem in report.problems))
    return Constraint("grammar", report.guest_text, tuple(warning.show_warning() for warning in report.warnings))


@one_check("grammar or pattern", costly_parts_of_grammar)
def quoted(text: str, syntax: Literal["lark", "regex"]) -> Constraint:
    """Return the constraint that the whole text is one of a Lark grammar or of a pattern, followed by a double quote.

    The quote lets a model that writes the text inside of a JSON string end it. Errors are those of `grammar` and
    `regex`.
    """
    if syntax == "regex":
        regex(text)
        flags = _FLAGS.match(text)
        assert flags is not None  # the pattern matches the empty text
        return regex(f'{flags[0]}(?:{text[flags.end() :]})"')
    warnings = grammar(text, syntax="lark").warnings
    tree = read_tree(text, "lark")
    start = Rule("aici__quoted", sequence(Ref(tree.start), ExactText('"')))
    closed = replace(tree, start=start.name, rules={start.name: start, **tree.rules})
    return replace(grammar(write_y(closed).text, syntax="y"), warnings=warnings)


def choices(texts: Sequence[str]) -> Constraint:
    """Return the constraint that the whole text is an element of `texts`."""
    if why := check_choices(texts):
        raise UsageError(why)
    return Constraint("choices", _json(list(texts)))


def substring(text: str, *, end: str = "") -> Constraint:
    """Return the constraint that the whole output is a run of words of `text`, followed by `end`."""
    if why := check_substring(text, end):
        raise UsageError(why)
    return Constraint("substring", _json({"text": text, "end": end}))


def named(guest: str, argument: str) -> Constraint:
    """Return the constraint of a shipped guest by name, or of a name in TRANSLATED. `argument` has the guest's own
    form."""
    _check_size(argument)
    match guest:
        case "regex":
            return regex(argument)
        case "grammar":
            return grammar(argument)
        case "structural_tag":
            return structural_tag(argument)
    if guest in SCRIPT_GUESTS.values():
        return script(guest, argument)
    _check_json(guest, argument)
    warnings: tuple[str, ...] = ()
    if guest == "json_schema":
        report = _asked_schema(argument)
        problems, warnings = _shown_problems(report), _shown_warnings(report)
    else:
        question = f'{{"choices": {argument}}}' if guest == "choices" else argument
        problems = ask(guest, question.encode()).get("message", "")
    if problems:
        raise UsageError(problems, hint=f"see the README of the guest {guest}")
    return Constraint(guest, argument, warnings)


@one_check("schema", costly_parts_of_schema)
def _asked_schema(argument: str) -> SchemaReport:
    return parse_report(ask("json_schema", argument.encode()))


def script(guest: str, program: str) -> Constraint:
    """Return the constraint that `program` controls the text. The guest's interpreter reports errors at the start."""
    _check_size(program, "script")
    if not program.strip():
        raise UsageError("the script is empty")
    _check_unicode(program, "script")
    return Constraint(guest, program)


def _check_size(argument: str, what: str = "constraint") -> None:
    """Refuse a large argument before the parser, which would take long, sees the argument."""
    if len(argument.encode(errors="surrogatepass")) > MAX_ARGUMENT_BYTES:
        raise UsageError(f"the {what} is larger than {MAX_ARGUMENT_BYTES >> 20} MiB")


def _check_unicode(argument: str, what: str) -> None:
    try:
        argument.encode()
    except UnicodeEncodeError as error:
        raise UsageError(f"the {what} has half a surrogate pair, which is not a character") from error


def _check_json(guest: str, argument: str) -> None:
    try:
        argument.encode()
        json.loads(argument)
    except UnicodeEncodeError as error:
        raise UsageError("half a surrogate pair is not a character") from error
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise UsageError(
            f"the argument of {guest} is not JSON: {where}: {error.msg}", hint=f"see the README of the guest {guest}"
        ) from error
    except RecursionError:
        return  # the guest, which has a bound, says it better


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
