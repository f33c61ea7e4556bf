"""Tell which notation a grammar is written in: by the file's extension, else by the text."""

import re
from pathlib import PurePath
from typing import Final, NamedTuple

from aici_controllers.notations.tree import GrammarSyntax

_EXTENSIONS: Final[dict[str, GrammarSyntax]] = {
    ".y": "y",
    ".yacc": "y",
    ".lark": "lark",
    ".gbnf": "gbnf",
    ".ebnf": "gbnf",
}
TITLES: Final[dict[GrammarSyntax, str]] = {"y": "yacc's notation (.y)", "lark": "Lark", "gbnf": "GBNF"}

_QUOTED: Final = re.compile(r'"(?:\\.|[^"\\\n])*"|/\*.*?\*/', re.DOTALL)
_SEPARATOR: Final = re.compile(r"(?m)^[ \t]*%%")
_YACC: Final = re.compile(
    r"(?m)^[ \t]*%(?:start|token|left|right|nonassoc|option|union|type|expect|glr-parser)\b|^[ \t]*%\{"
)
_GBNF: Final = re.compile(r"(?m)^[ \t]*[\w.-]+[ \t]*::=")
_LARK: Final = re.compile(
    r"(?m)^[ \t]*(?:%(?:import|ignore|llguidance|declare|extend|override)\b"
    r"|[?!]*[\w-]+(?:\{[^}]*\})?(?:\.-?\d+)?(?:\[[^\]]*\])?[ \t]*:(?![:=]))"
)


class Told(NamedTuple):
    syntax: GrammarSyntax
    by: str
    """How the notation was told: "the extension", "the text"; empty if the caller said it."""


def told_syntax(text: str, name: str = "", given: GrammarSyntax | None = None) -> Told:
    """Return the notation of a grammar. `name`: the file's name, or what stands for it in messages.

    >>> told_syntax('root ::= "a"')
    Told(syntax='gbnf', by='the text')
    """
    if given:
        return Told(given, "")
    if syntax := _EXTENSIONS.get(PurePath(name).suffix.lower()):
        return Told(syntax, "the extension")
    plain = _QUOTED.sub('""', text)
    without_comments = re.sub(r"(?m)#.*$|//.*$", "", plain)
    if _SEPARATOR.search(plain) or _YACC.search(plain):
        return Told("y", "the text")
    if _GBNF.search(without_comments):
        return Told("gbnf", "the text")
    if _LARK.search(without_comments) and not re.search(r";[ \t]*$", without_comments, re.MULTILINE):
        return Told("lark", "the text")
    return Told("y", "the text")
