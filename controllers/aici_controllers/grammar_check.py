"""Checks grammars and runs them on text, with the very reader and parser that constrain generation.

They are inside the guest `grammar`. The syntax is described in `controllers/guests/grammar/README.md`.
"""

from dataclasses import dataclass
from typing import Any, Literal

from aici_base.errors import UsageError
from aici_controllers.ask_guest import ask


@dataclass(frozen=True, slots=True)
class GrammarProblem:
    """`line` and `column` count from 1, in code points; 0 when the problem is nowhere in particular."""

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
    """Patterns under SKIP; not among the terminals."""
    contextual: bool
    states: int
    settled: int
    """Conflicts that precedence settled."""


@dataclass(frozen=True, slots=True)
class GrammarReport:
    problems: list[GrammarProblem]
    summary: GrammarSummary | None
    """None when the file could not be read as a grammar."""

    @classmethod
    def from_answer(cls, answer: dict[str, Any]) -> "GrammarReport":
        """From what the guest says to {"check": text}."""
        summary = GrammarSummary(**answer["summary"]) if answer["summary"] else None
        return cls([GrammarProblem(**problem) for problem in answer["problems"]], summary)

    @property
    def ok(self) -> bool:
        return all(problem.severity != "error" for problem in self.problems)


@dataclass(frozen=True, slots=True)
class Verdict:
    """`at` is the offset of the first byte that is refused, or the input's length; `line`, `column`: its place."""

    accepted: bool
    at: int
    line: int
    column: int
    expected: list[str]
    """What could stand there: the names of terminals."""
    complete: bool
    """Could the input have ended there?"""


def check_grammar(text: str) -> GrammarReport:
    """UnavailableError when the guests are not built."""
    return GrammarReport.from_answer(ask("grammar", {"check": text}))


def accepts(grammar: str, text: str) -> Verdict:
    """Whether `text` is a whole text of the grammar. UsageError when the grammar has errors."""
    answer: dict[str, Any] = ask("grammar", {"accepts": {"grammar": grammar, "input": text}})
    if "problem" in answer:
        raise UsageError(f"the grammar has errors: {answer['problem']}", hint="`aici grammar check` lists them all")
    return Verdict(**answer)
