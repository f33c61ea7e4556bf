"""`aici grammar`: checks grammars, and says where a text leaves one."""

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from aici_base.errors import UsageError
from aici_cli.files import read_text
from aici_cli.output import print_json

if TYPE_CHECKING:
    from aici_controllers.grammar_check import GrammarSummary, Verdict

app = typer.Typer(help="Check grammars.", no_args_is_help=True, rich_markup_mode=None)

MAX_GRAMMAR_BYTES = 1 << 20
MAX_INPUT_BYTES = 8 << 20
_AROUND = 40

Grammar = Annotated[str, typer.Argument(metavar="FILE", help="A .y file, a shipped grammar's name, or - for stdin.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command()
def check(file: Grammar, json: Json = False) -> None:
    """Report what is wrong with a grammar, and its size; exit 1 on errors."""
    from aici_controllers.grammar_check import check_grammar

    name, text = read_grammar(file)
    report = check_grammar(text)
    if json:
        print_json({"ok": report.ok} | asdict(report))
    else:
        for problem in report.problems:
            print(problem.show(name), file=sys.stderr)
        if report.summary:
            print(f"{name}: {_describe(report.summary)}")
    if not report.ok:
        raise typer.Exit(1)


@app.command()
def accepts(
    file: Grammar,
    input_: Annotated[str, typer.Argument(metavar="INPUT", help="A file, or - for stdin.")],
    json: Json = False,
) -> None:
    """Say whether a text is one of the grammar's; if not, where it fails and what was expected; exit 1 then."""
    from aici_controllers import grammar_check

    if file == input_ == "-":
        raise UsageError("the grammar and the input cannot both be on stdin")
    grammar = read_grammar(file)[1]
    name = _name(input_)
    text = read_text(Path(input_), "the input", MAX_INPUT_BYTES, keep_bom=True)
    verdict = grammar_check.accepts(grammar, text)
    if json:
        print_json(asdict(verdict))
    else:
        print(f"{name}: accepted" if verdict.accepted else _refusal(name, text, verdict))
    if not verdict.accepted:
        raise typer.Exit(1)


@app.command(name="list")
def list_(json: Json = False) -> None:
    """List the grammars that ship."""
    from aici_controllers.catalog import grammar_names, grammar_path

    if json:
        print_json([{"name": name, "path": str(grammar_path(name))} for name in grammar_names()])
        return
    for name in grammar_names():
        print(f"{name}  {grammar_path(name)}")


def read_grammar(file: str) -> tuple[str, str]:
    """What to call it, and its text. A file is meant before a grammar that ships; what looks like a path is no name."""
    from aici_controllers.catalog import grammar_path

    if file != "-" and not Path(file).exists() and "/" not in file and "." not in file:
        file = str(grammar_path(file))
    return _name(file), read_text(Path(file), "the grammar", MAX_GRAMMAR_BYTES)


def _name(file: str) -> str:
    return "stdin" if file == "-" else file


def _describe(summary: "GrammarSummary") -> str:
    parts = [
        f"{summary.rules} rules, {summary.productions} productions",
        f"{summary.terminals} terminals and {summary.skipped} under SKIP",
        f"{summary.states} LR(1) states",
        f"{summary.settled} conflicts settled by precedence",
    ]
    return "; ".join(parts + ["contextual lexer"] * summary.contextual)


def _refusal(name: str, text: str, verdict: "Verdict") -> str:
    """The place, what is there, the line with a caret under it, and what could be there."""
    content = text.encode()
    before = content[: verdict.at].decode(errors="ignore").rpartition("\n")[2]
    after = content[verdict.at :].decode(errors="replace").partition("\n")[0]
    found = f"unexpected {after[:20]!r}" if verdict.at < len(content) else "unexpected end of input"
    if verdict.at < len(content) and not after:
        found = "unexpected end of line"
    expected = ", ".join(verdict.expected) or "nothing: the text is complete before"
    line = f"{before[-_AROUND:]}{after[:_AROUND]}".replace("\t", " ")
    caret = " " * len(before[-_AROUND:]) + "^"
    return f"{name}:{verdict.line}:{verdict.column}: {found}\n  {line}\n  {caret}\n  expected: {expected}"
