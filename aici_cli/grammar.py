"""`aici grammar`: check grammars, and test texts against a grammar."""

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from aici_base.errors import UsageError
from aici_cli.files import read_text
from aici_cli.output import print_json, say
from aici_controllers.notations.tree import GrammarSyntax

if TYPE_CHECKING:
    from aici_controllers.grammar_check import GrammarSummary, Verdict

app = typer.Typer(help="Check grammars, and test texts against a grammar.", no_args_is_help=True, rich_markup_mode=None)

MAX_GRAMMAR_BYTES = 1 << 20
MAX_INPUT_BYTES = 8 << 20
_AROUND = 40

Grammar = Annotated[
    str,
    typer.Argument(
        metavar="FILE",
        help="A file in Lark, GBNF or yacc's notation (.y), the name of a shipped grammar, or - for stdin.",
    ),
]
Syntax = Annotated[
    GrammarSyntax | None,
    typer.Option(
        "--grammar-syntax", help="The notation of the grammar (default: as the extension, or else the text, has it)."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command()
def check(file: Grammar, syntax: Syntax = None, json: Json = False) -> None:
    """Report the errors and the size of a grammar; exit with 1 on errors."""
    from aici_controllers.grammar_check import check_grammar
    from aici_controllers.notations.reading import beside

    name, text = read_grammar(file)
    report = check_grammar(text, name=name, syntax=syntax, load=beside(Path(name).parent))
    if json:
        print_json({"ok": report.ok} | asdict(report))
    else:
        for problem in report.problems:
            print(problem.show(name), file=sys.stderr)
        if report.reading and not report.ok:
            say(f" hint: {report.reading}; if not, give --grammar-syntax y, lark or gbnf")
        if report.summary:
            print(f"{name}: {_describe(report.summary)}")
    if not report.ok:
        raise typer.Exit(1)


@app.command()
def accepts(
    file: Grammar,
    input_: Annotated[str, typer.Argument(metavar="INPUT", help="A file, or - for stdin.")],
    syntax: Syntax = None,
    json: Json = False,
) -> None:
    """Test whether a grammar accepts a text; if not, print position and expectation, and exit with 1."""
    from aici_controllers import grammar_check
    from aici_controllers.notations.reading import beside

    if file == input_ == "-":
        raise UsageError("the grammar and the input cannot both be on stdin")
    grammar_name, grammar = read_grammar(file)
    name = _name(input_)
    text = read_text(Path(input_), "the input", MAX_INPUT_BYTES, keep_bom=True)
    verdict = grammar_check.accepts(
        grammar, text, name=grammar_name, syntax=syntax, load=beside(Path(grammar_name).parent)
    )
    if json:
        print_json(asdict(verdict))
    else:
        print(f"{name}: accepted" if verdict.accepted else _refusal(name, text, verdict))
    if not verdict.accepted:
        raise typer.Exit(1)


@app.command()
def convert(
    file: Grammar,
    to: Annotated[GrammarSyntax, typer.Option("--to", help="The notation to write.")],
    syntax: Syntax = None,
) -> None:
    """Write a grammar in another notation, to stdout."""
    from aici_controllers.notations.convert import converted
    from aici_controllers.notations.reading import beside

    name, text = read_grammar(file)
    done = converted(text, to, name=name, syntax=syntax, load=beside(Path(name).parent))
    for note in done.notes:
        say(f"note: {note}")
    print(done.text, end="")


@app.command(name="list")
def list_(json: Json = False) -> None:
    """List the shipped grammars."""
    from aici_controllers.catalog import grammar_names, grammar_path

    if json:
        print_json([{"name": name, "path": str(grammar_path(name))} for name in grammar_names()])
        return
    for name in grammar_names():
        print(f"{name}  {grammar_path(name)}")


def read_grammar(file: str) -> tuple[str, str]:
    """Return the display name and the text of a grammar.

    A file takes precedence over a shipped grammar of the same name.
    """
    from aici_controllers.catalog import grammar_path

    if file != "-" and not Path(file).exists() and "/" not in file and "." not in file:
        file = str(grammar_path(file))
    return _name(file), read_text(Path(file), "the grammar", MAX_GRAMMAR_BYTES)


def _name(file: str) -> str:
    return "stdin" if file == "-" else file


def _describe(summary: "GrammarSummary") -> str:
    if summary.engine == "scannerless":
        counts = f"{summary.rules} rules, {summary.productions} productions; {summary.terminals} terminals"
        return f"{counts}; no lexer, every reading is followed"
    parts = [
        f"{summary.rules} rules, {summary.productions} productions",
        f"{summary.terminals} terminals and {summary.skipped} under SKIP",
        f"{summary.states} LR(1) states",
        f"{summary.settled} conflicts settled by precedence",
    ]
    if summary.shifted:
        parts.append(f"{summary.shifted} by shifting")
    if summary.engine == "general":
        parts.append(f"general parser ({summary.followed} conflicts followed)")
    return "; ".join(parts + ["contextual lexer"] * summary.contextual)


def _refusal(name: str, text: str, verdict: "Verdict") -> str:
    """Format a rejection: position, found text, the line with a caret, and the expected terminals."""
    content = text.encode()
    before = content[: verdict.at].decode(errors="ignore").rpartition("\n")[2]
    after = content[verdict.at :].decode(errors="replace").partition("\n")[0]
    found = f"unexpected {after[:20]!r}" if verdict.at < len(content) else "unexpected end of input"
    if verdict.at < len(content) and not after:
        found = "unexpected end of line"
    expected = ", ".join(verdict.expected) or "the end of the text"
    line = f"{before[-_AROUND:]}{after[:_AROUND]}".replace("\t", " ")
    caret = " " * len(before[-_AROUND:]) + "^"
    return f"{name}:{verdict.line}:{verdict.column}: {found}\n  {line}\n  {caret}\n  expected: {expected}"
