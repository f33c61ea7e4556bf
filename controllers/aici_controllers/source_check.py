"""Check what a user writes in an editor: all problems, each with its place. Nothing runs, and no model is needed.

The parsers are those of generation: every shipped controller answers a question about its argument.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal

from aici_base.errors import ControllerError, UsageError
from aici_controllers.ask_guest import ask
from aici_controllers.check_cost import CostlyError, one_tank
from aici_controllers.constraints import MAX_ARGUMENT_BYTES, SPACED
from aici_controllers.grammar_check import check_grammar
from aici_controllers.json_places import line_and_column, place_of_pointer
from aici_controllers.regex_check import check_regex
from aici_controllers.schema_check import SchemaProblem, check_schema

Language = Literal["javascript", "python", "steps", "regex", "grammar", "json_schema"]

_JAVASCRIPT_PLACE: Final = re.compile(r"\n\s+at main:(\d+):(\d+)")
_PYTHON_PLACE: Final = re.compile(r'File "main\.py", line (\d+)')
_JSON_PLACE: Final = re.compile(r"\bline (\d+), column (\d+)(?:: )?")
_TAB: Final = 8
_TOO_DEEP: Final = "the text is nested too deeply, or needs too much memory, to be checked"
_NEXT_STEP: Final = re.compile(r"\n(?=#)")
_STEP: Final = re.compile(r"#(\S*?): (.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class SourceProblem:
    """`line` and `column` count from 1, in code points; 0 if the problem has no place."""

    severity: Literal["error", "warning"]
    line: int
    column: int
    message: str


def check_source(language: Language, text: str) -> list[SourceProblem]:
    """Return the problems of a script, of declarative steps, or of a constraint; none if a run accepts the text.

    Raise UsageError for a text that is too large, UnavailableError if the guests are not built.
    """
    if len(text) > MAX_ARGUMENT_BYTES:
        raise UsageError(f"the text is larger than {MAX_ARGUMENT_BYTES >> 20} MiB", param="text")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        return [SourceProblem("error", *line_and_column(text, error.start), "half a surrogate pair is not a character")]
    if language not in ("regex", "json_schema") and not text.strip():
        return [SourceProblem("error", 1, 1, "the text is empty")]
    try:
        with one_tank():
            return _CHECKS[language](text)
    except CostlyError as error:
        return [SourceProblem("error", 0, 0, f"too costly to check: {error.message}")]


def _javascript(text: str) -> list[SourceProblem]:
    message = _answer("jsctrl", {"script": text})
    if message is None:
        return []
    said = message.removeprefix("Exception: ")
    place = _JAVASCRIPT_PLACE.search(said)
    if place is None:
        return [SourceProblem("error", 0, 0, said)]
    line = int(place[1])
    column = _column_of_byte(text, line, int(place[2]))
    return [SourceProblem("error", line, column, said[: place.start()])]


def _python(text: str) -> list[SourceProblem]:
    try:
        answer = ask("pyctrl", {"script": text})
    except ControllerError:
        return [SourceProblem("error", 0, 0, _TOO_DEEP)]
    if (message := answer.get("message")) is None:
        return []
    said = message.splitlines()[-1]
    if not (places := _PYTHON_PLACE.findall(message)):
        return [SourceProblem("error", 0, 0, said)]
    line = int(places[-1])
    return [SourceProblem("error", line, _column_of_micropython(text, line, answer["column"]), said)]


def _steps(text: str) -> list[SourceProblem]:
    message = _answer("declctrl", {"steps": text})
    return [] if message is None else [_of_step(text, each) for each in _NEXT_STEP.split(message)]


def _of_step(text: str, problem: str) -> SourceProblem:
    step = _STEP.fullmatch(problem)
    if step is None:
        return _with_place_in_message(SourceProblem("error", 0, 0, problem))
    return SourceProblem("error", *place_of_pointer(text, step[1]), step[2])


def _regex(text: str) -> list[SourceProblem]:
    problem = check_regex(text)
    return (
        [] if problem is None else [SourceProblem("error", *line_and_column(text, problem.position), problem.message)]
    )


def _grammar(text: str) -> list[SourceProblem]:
    problems = check_grammar(text).problems
    return [SourceProblem(each.severity, each.line, each.column, each.message) for each in problems]


def _json_schema(text: str) -> list[SourceProblem]:
    report = check_schema(text, options=SPACED)
    errors = [_of_schema(text, "error", each) for each in report.problems]
    return errors + [_of_schema(text, "warning", each) for each in report.warnings]


def _of_schema(text: str, severity: Literal["error", "warning"], problem: SchemaProblem) -> SourceProblem:
    line, column = place_of_pointer(text, problem.pointer)
    found = SourceProblem(severity, line, column, problem.message)
    return found if problem.pointer else _with_place_in_message(found)


_CHECKS: Final[Mapping[Language, Callable[[str], list[SourceProblem]]]] = {
    "javascript": _javascript,
    "python": _python,
    "steps": _steps,
    "regex": _regex,
    "grammar": _grammar,
    "json_schema": _json_schema,
}


def _answer(guest: str, question: Mapping[str, str]) -> str | None:
    """Return the message of a guest; None if the guest has no objection."""
    try:
        message: str | None = ask(guest, question).get("message")
    except ControllerError:
        return _TOO_DEEP
    return message


def _with_place_in_message(problem: SourceProblem) -> SourceProblem:
    """Return a problem of text that is not JSON, whose message names line and column."""
    place = _JSON_PLACE.search(problem.message)
    if place is None:
        return problem
    message = problem.message[: place.start()] + problem.message[place.end() :]
    return replace(problem, line=int(place[1]), column=int(place[2]), message=message.rstrip(" :"))


def _column_of_byte(text: str, line: int, column: int) -> int:
    """Return the column in code points of a column in bytes of UTF-8."""
    lines = text.split("\n")
    before = lines[line - 1].encode()[: column - 1] if line <= len(lines) else b""
    return len(before.decode(errors="ignore")) + 1


def _column_of_micropython(text: str, line: int, column: int) -> int:
    """Return the column in code points of a column in bytes with tabs to the next multiple of eight; 1 for 0."""
    lines = text.split("\n")
    at = 1
    for number, character in enumerate(lines[line - 1] if line <= len(lines) else "", 1):
        if at >= column:
            return number
        at = (at - 1 + _TAB) // _TAB * _TAB + 1 if character == "\t" else at + len(character.encode())
    return len(lines[line - 1]) + 1 if column and line <= len(lines) else 1
