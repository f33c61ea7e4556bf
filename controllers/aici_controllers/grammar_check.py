"""Check grammars in any notation, and run grammars on text, with the reader and parser of generation.

Reader and parser are inside the guest `grammar`; `controllers/guests/grammar/README.md` describes the guest's syntax.
Lark and GBNF are translated into it, and every problem is told with its place in the user's own file.
"""

from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from aici_base.errors import UsageError
from aici_controllers.ask_guest import ask
from aici_controllers.check_cost import LONG_FUEL, one_tank
from aici_controllers.notations.detect import TITLES, Told
from aici_controllers.notations.lark_imports import Load, no_files
from aici_controllers.notations.reading import Reading, read_notation
from aici_controllers.notations.tree import GrammarSyntax, Place

_AS_GIVEN: Final = Told("y", "")


@dataclass(frozen=True, slots=True)
class GrammarProblem:
    """A problem of a grammar. `line` and `column` count from 1, in code points; 0 if the problem has no position."""

    severity: Literal["error", "warning"]
    line: int
    column: int
    message: str
    example: str
    """An input that shows the problem; may be empty."""

    def show(self, name: str) -> str:
        where = f"{name}:{self.line}:{self.column}" if self.line else name
        example = f"\n  example: {self.example}" if self.example else ""
        return f"{where}: {self.severity}: {self.message}{example}"


@dataclass(frozen=True, slots=True)
class GrammarSummary:
    rules: int
    productions: int
    terminals: int
    skipped: int
    """Patterns under SKIP, which are not terminals."""
    contextual: bool
    engine: Literal["lr", "general", "scannerless"]
    """lr: the LR(1) parser. general: a slower parser that follows all ways to read the text. scannerless:
    derivatives, without a lexer."""
    states: int
    settled: int
    """Conflicts settled by precedence."""
    shifted: int
    """Conflicts in which the parser shifts, as yacc does."""
    followed: int
    """Conflicts in which the general parser follows all ways."""


@dataclass(frozen=True, slots=True)
class GrammarReport:
    problems: list[GrammarProblem]
    summary: GrammarSummary | None
    """Facts about the grammar; None if the text could not be read as a grammar."""
    told: Told = _AS_GIVEN
    """The notation, and what told it."""
    guest_text: str = ""
    """The grammar in the guest's syntax; empty if the text could not be translated."""

    @classmethod
    def from_answer(cls, answer: dict[str, Any]) -> "GrammarReport":
        """Convert the guest's answer to {"check": text}."""
        summary = GrammarSummary(**answer["summary"]) if answer["summary"] else None
        return cls([GrammarProblem(**problem) for problem in answer["problems"]], summary)

    @property
    def reading(self) -> str:
        """Return how the text was read, for a user whose text is in another notation; empty if the user said how."""
        if not self.told.by or self.told == Told("y", "the extension"):
            return ""
        return f"the grammar was read as {TITLES[self.told.syntax]}: so says {self.told.by}"

    @property
    def ok(self) -> bool:
        return all(problem.severity != "error" for problem in self.problems)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of reading an input. `at`: offset of the first refused byte, or the length of the input; `line` and
    `column` give the same position."""

    accepted: bool
    at: int
    line: int
    column: int
    expected: list[str]
    """The terminals possible at this position, by name."""
    complete: bool
    """Whether the input could end at this position."""


def check_grammar(
    text: str, *, name: str = "", syntax: GrammarSyntax | None = None, load: Load = no_files
) -> GrammarReport:
    """Check a grammar. Raise UnavailableError if the guests are not built.

    The extension of `name`, or else the text, tells the notation, unless `syntax` does. `load` finds what a Lark file
    imports.
    """
    reading = read_notation(text, name=name, syntax=syntax, load=load)
    if reading.error:
        return GrammarReport([_problem("error", *reading.error)], None, reading.told)
    report = GrammarReport.from_answer(ask("grammar", {"check": reading.guest.text}))
    if reading.told.syntax != "y":
        ours = [_problem("warning", place, message) for place, message in reading.warnings]
        found = ours + [_in_users_file(problem, reading) for problem in report.problems]
        report = replace(report, problems=sorted(found, key=lambda problem: (problem.line, problem.column)))
    return replace(report, told=reading.told, guest_text=reading.guest.text)


def _problem(severity: Literal["error", "warning"], place: Place, message: str) -> GrammarProblem:
    return GrammarProblem(severity, place.line, place.column, message, "")


def _in_users_file(problem: GrammarProblem, reading: Reading) -> GrammarProblem:
    place = reading.place(problem.line, problem.column)
    return replace(problem, line=place.line, column=place.column)


def accepts(
    grammar: str, text: str, *, name: str = "", syntax: GrammarSyntax | None = None, load: Load = no_files
) -> Verdict:
    """Check whether `text` is a complete text of the grammar. Raise UsageError if the grammar has errors."""
    reading = read_notation(grammar, name=name, syntax=syntax, load=load)
    if reading.error:
        place, message = reading.error
        why = f"line {place.line}, column {place.column}: {message}"
        raise UsageError(f"the grammar has errors: {why}", cli_hint="`aici grammar check` lists them all")
    with one_tank(LONG_FUEL):
        answer: dict[str, Any] = ask("grammar", {"accepts": {"grammar": reading.guest.text, "input": text}})
    if "problem" in answer:
        why = answer["problem"]
        if reading.told.syntax != "y":  # the answer's places are those of the translation
            problems = check_grammar(grammar, name=name, syntax=syntax, load=load).problems
            errors = [problem.show("the grammar") for problem in problems if problem.severity == "error"]
            why = "\n".join(errors) or why
        raise UsageError(f"the grammar has errors: {why}", cli_hint="`aici grammar check` lists them all")
    return Verdict(**answer)
