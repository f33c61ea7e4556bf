"""Check a structural tag with the parser of generation: the guest `grammar` runs structural tags."""

import json
import re
from dataclasses import dataclass
from typing import Any, Final

from aici_controllers.ask_guest import ask
from aici_controllers.grammar_check import GrammarReport
from aici_controllers.notations.json_part import PartError, pointer_of
from aici_controllers.notations.structural_tag import Spot, read_structural_tag
from aici_controllers.notations.tree import NotationError
from aici_controllers.notations.y_writer import write_y
from aici_controllers.schema_check import DEFAULTS, SchemaOptions, SchemaProblem, SchemaReport

_OWN_PREFIX: Final = re.compile(r"\bgrammar\d+_")
_IN_SCHEMA: Final = re.compile(r"%json(?: at #(?P<pointer>\S*?))?: (?P<message>.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class TagProblem:
    """A problem of a structural tag. `pointer` (RFC 6901) points to the wrong part; "" is the whole document."""

    pointer: str
    message: str

    def show(self) -> str:
        return f"structural tag error at #{self.pointer}: {self.message}"

    def show_warning(self) -> str:
        return f"not enforced: #{self.pointer}: {self.message}"


@dataclass(frozen=True, slots=True)
class TagReport:
    """The result of a check. With problems, `guest_text` is of no use. `warnings`: parts that are not enforced."""

    problems: tuple[TagProblem, ...]
    warnings: tuple[TagProblem, ...] = ()
    guest_text: str = ""
    """The structural tag in the syntax of the guest `grammar`."""


def check_structural_tag(document: str, options: SchemaOptions = DEFAULTS) -> TagReport:
    """Check a structural tag, which is JSON text. `options`: how its schemas are read.

    Raise UnavailableError if the guests are not built.
    """
    try:
        tree, spots = read_structural_tag(json.loads(document), options)
        guest = write_y(tree)
    except json.JSONDecodeError as error:
        return _refused("", f"not JSON: line {error.lineno}, column {error.colno}: {error.msg}")
    except PartError as error:
        return _refused(pointer_of(error.path), error.message)
    except NotationError as error:
        return _refused(spots[error.place.line - 1].pointer if error.place.line else "", error.message)
    except RecursionError:
        return _refused("", "the document is nested too deep")
    report = GrammarReport.from_answer(ask("grammar", {"check": guest.text}))
    problems: list[TagProblem] = []
    warnings = [_at_spot(spots, place.line, message) for place, message in tree.warnings]
    for each in report.problems:
        told = _at_spot(spots, guest.place(each.line, each.column).line, each.message)
        if each.severity == "error":
            problems.append(told)
        elif _IN_SCHEMA.fullmatch(each.message):  # others are about rules behind a trigger that never comes
            warnings.append(told)
    inside = tuple(problem for problem in problems if problem.pointer)  # the cause of problems of the whole document
    return TagReport(inside or tuple(problems), tuple(warnings), guest.text)


def check_schema_with_grammars(schema: str, options: SchemaOptions = DEFAULTS) -> tuple[SchemaReport, str]:
    """Check a JSON Schema, JSON text, with grammars in its strings. The text is that of the guest `grammar`."""
    report = check_structural_tag(f'{{"format": {{"type": "json_schema", "json_schema": {schema}}}}}', options)
    problems, warnings = (
        tuple(SchemaProblem(each.pointer.removeprefix("/format/json_schema"), "", each.message) for each in which)
        for which in (report.problems, report.warnings)
    )
    return SchemaReport(problems, warnings, ()), report.guest_text


def _refused(pointer: str, message: str) -> TagReport:
    return TagReport((TagProblem(pointer, message),))


def _at_spot(spots: list[Spot], number: int, message: str) -> TagProblem:
    spot = spots[number - 1] if number else Spot("")
    message = _OWN_PREFIX.sub("", message)
    if found := _IN_SCHEMA.fullmatch(message):
        return TagProblem(spot.pointer + (found["pointer"] or ""), found["message"])
    if spot.inside.line:
        message = f"line {spot.inside.line}, column {spot.inside.column}: {message}"
    return TagProblem(spot.pointer, message)


def accepts_texts(report: TagReport, texts: list[str]) -> list[tuple[bool, int]]:
    """For each text: whether it is complete, and how many of its bytes begin an allowed text."""
    answer: Any = ask("grammar", {"accepts": {"grammar": report.guest_text, "inputs": texts}})
    return [(one["accepted"], one["at"]) for one in answer["answers"]]
