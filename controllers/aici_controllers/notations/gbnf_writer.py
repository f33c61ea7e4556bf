"""Print a tree as GBNF, the notation of llama.cpp and XGrammar."""

import re
from collections.abc import Callable
from typing import Final

from aici_controllers.notations.regex_writer import counts
from aici_controllers.notations.tree import (
    Alt,
    Both,
    Chars,
    ExactText,
    Json,
    Lexeme,
    Look,
    Node,
    Not,
    NotationError,
    Ref,
    Repeat,
    Rule,
    Seq,
    Shortest,
    Tree,
    alternatives,
    place_of,
)

_CHOICE, _SEQUENCE, _ATOM = range(3)
_SETS: Final = {"\\d": "0-9", "\\w": "a-zA-Z0-9_", "\\s": " \\t\\n\\r\\x0B\\x0C"}
_LETTER: Final = re.compile(r"[a-z]-[a-z]|[A-Z]-[A-Z]|[a-zA-Z]")


def write_gbnf(tree: Tree) -> tuple[str, list[str]]:
    """Return the text, and notes about what GBNF says otherwise than the tree."""
    if tree.indentation:
        raise NotationError(tree.rules[tree.start].place, "indentation has no counterpart in GBNF")
    return _Writer(tree).written()


class _Writer:
    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._notes: list[str] = []
        self._names: dict[str, str] = {}
        taken = {"root", "ws-skipped"}
        for name in (*tree.rules, *tree.terminals):
            plain = re.sub(r"[^a-zA-Z0-9]", "-", name).strip("-") or "rule"
            while plain in taken:
                plain += "-x"
            taken.add(plain)
            self._names[name] = plain
        self._skips = bool(tree.ignored)
        if not self._skips:
            self._names[tree.start] = "root"

    def written(self) -> tuple[str, list[str]]:
        lines: list[str] = []
        if self._skips:
            lines.append(f"root ::= ws-skipped {self._names[self._tree.start]}")
            self._notes.append(
                "GBNF has no lexer: what was ignored stands after each lexeme, and two words may run together"
            )
        order = sorted(self._tree.rules.values(), key=lambda rule: rule.name != self._tree.start)
        lines += [self._definition(rule) for rule in order]
        lines += [
            self._definition(Rule(one.name, Lexeme(one.body, one.place))) for one in self._tree.terminals.values()
        ]
        if self._skips:
            skipped = Repeat(alternatives(*self._tree.ignored), 0, None)
            lines.append(f"ws-skipped ::= {self._source(skipped, _SEQUENCE)}")
        return "\n".join(lines) + "\n", self._notes

    def _definition(self, rule: Rule) -> str:
        options = rule.body.options if isinstance(rule.body, Alt) else (rule.body,)
        shown = [self._source(option, _SEQUENCE) or '""' for option in options]
        return f"{self._names[rule.name]} ::= {' | '.join(shown)}"

    def _source(self, node: Node, level: int) -> str:
        source, own = self._printed(node)
        return source if own >= level else f"({source})"

    def _after(self, source: str, own: int) -> tuple[str, int]:
        """A lexeme, with what may be skipped behind it."""
        if not self._skips:
            return source, own
        return (f"({source})" if own == _CHOICE else source) + " ws-skipped", _SEQUENCE

    def _printed(self, node: Node) -> tuple[str, int]:
        match node:
            case Lexeme(item):
                return self._after(*_Inside(self).printed(item))
            case ExactText(value) if self._skips and value:
                return self._after(*_Inside(self).printed(node))
            case Ref(name):
                return self._names[name], _ATOM
            case Json(_, place):
                raise NotationError(place, "GBNF has no %json: convert the schema by itself")
            case _:
                return self.composed(node, self._source)

    def composed(self, node: Node, print_: Callable[[Node, int], str]) -> tuple[str, int]:
        """Return the text of a node, and how tightly its parts hold together. `print_` makes the texts of its parts."""
        match node:
            case Seq(()) | ExactText(""):
                return '""', _ATOM
            case Seq(items):
                return " ".join(
                    print_(item, _ATOM if isinstance(item, Alt) else _SEQUENCE) for item in items
                ), _SEQUENCE
            case Alt(options):
                return " | ".join(print_(option, _SEQUENCE) for option in options), _CHOICE
            case Repeat(item, low, high):
                return print_(item, _ATOM) + counts(low, high), _SEQUENCE
            case ExactText(value, caseless):
                return _text(value, caseless)
            case Chars():
                return _chars(node), _ATOM
            case Both() | Not() | Shortest() | Look():
                message = "GBNF has no & and ~, and no shortest match: a terminal of this kind cannot be converted"
                raise NotationError(place_of(node), message)
        raise NotationError(place_of(node), "this has no form in GBNF")


class _Inside:
    """Prints the inside of a lexeme, where nothing is skipped."""

    def __init__(self, writer: _Writer) -> None:
        self._writer = writer

    def printed(self, node: Node) -> tuple[str, int]:
        return self._writer.composed(node, self._source)

    def _source(self, node: Node, level: int) -> str:
        source, own = self.printed(node)
        return source if own >= level else f"({source})"


def _text(value: str, caseless: bool) -> tuple[str, int]:
    if not caseless or value.lower() == value.upper():
        return f'"{"".join(map(_char, value))}"', _ATOM
    parts = []
    for char in value:
        cases = sorted({char.lower(), char.upper()})
        parts.append(f"[{''.join(map(_char, cases))}]" if len(cases) > 1 else f'"{_char(char)}"')
    return " ".join(parts), _ATOM if len(parts) == 1 else _SEQUENCE


def _char(char: str) -> str:
    known = {"\n": "\\n", "\t": "\\t", "\r": "\\r", '"': '\\"', "\\": "\\\\", "]": "\\]", "[": "\\["}
    code = ord(char)
    if char in known:
        return known[char]
    if char.isprintable():
        return char
    return f"\\x{code:02X}" if code < 256 else f"\\u{code:04X}" if code < 1 << 16 else f"\\U{code:08X}"


def _chars(node: Chars) -> str:
    source = node.source
    if source == ".":
        return "[^\\n]"
    if source == "(?s:.)":
        return "."
    if source in _SETS:
        return f"[{_SETS[source]}]"
    if source.startswith("\\") and source.lower() in _SETS:
        return f"[^{_SETS[source.lower()]}]"
    if not source.startswith("[") or re.search(r"\\[pPDWS]", source):
        raise NotationError(node.place, f"the class {source} has no form in GBNF")
    inner = source[1:-1]
    negated = inner.startswith("^")
    inner = inner.removeprefix("^")
    out = re.sub(r"\\(?:x[0-9a-f]{2}|u[0-9a-f]{4}|U[0-9a-f]{8}|.)", _class_escape, inner)
    if node.caseless:
        out += "".join(found[0].swapcase() for found in _LETTER.finditer(re.sub(r"\\.", "", inner)))
    return f"[{'^' if negated else ''}{out}]"


def _class_escape(found: re.Match[str]) -> str:
    source = found[0]
    if source in _SETS:
        return _SETS[source]
    if source[1] in "xuU":
        return source[:2] + source[2:].upper()
    if source[1] in "ntr\\]":
        return source
    if source[1] == "-":
        return "\\x2D"
    if source[1] == "^":
        return "\\x5E"
    return source[1:]
