"""Check grammars, and run grammars on text, with the reader and parser of generation.

Reader and parser are inside the guest `grammar`; `controllers/guests/grammar/README.md` describes the syntax.
"""

from dataclasses import dataclass
from typing import Any, Literal

from aici_base.errors import UsageError
from aici_controllers.ask_guest import ask


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
    engine: Literal["lr", "general"]
    """lr: the LR(1) parser. general: a slower parser that follows all ways to read the text."""
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

    @classmethod
    def from_answer(cls, answer: dict[str, Any]) -> "GrammarReport":
        """Convert the guest's answer to {"check": text}."""
        summary = GrammarSummary(**answer["summary"]) if answer["summary"] else None
        return cls([GrammarProblem(**problem) for problem in answer["problems"]], summary)

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


def check_grammar(text: str) -> GrammarReport:
    """Check a grammar. Raise UnavailableError if the guests are not built."""
    return GrammarReport.from_answer(ask("grammar", {"check": text}))


def accepts(grammar: str, text: str) -> Verdict:
    """Check whether `text` is a complete text of the grammar. Raise UsageError if the grammar has errors."""
    answer: dict[str, Any] = ask("grammar", {"accepts": {"grammar": grammar, "input": text}})
    if "problem" in answer:
        raise UsageError(f"the grammar has errors: {answer['problem']}", cli_hint="`aici grammar check` lists them all")
    return Verdict(**answer)
