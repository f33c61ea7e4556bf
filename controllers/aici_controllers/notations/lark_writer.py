"""Print a tree as a Lark grammar, in the dialect that Lark and llguidance share."""

import json
import re
from typing import Final

from aici_controllers.notations.facts import holds
from aici_controllers.notations.regex_reader import escaped
from aici_controllers.notations.regex_writer import counts, regex_source
from aici_controllers.notations.tree import (
    EMPTY,
    Alt,
    Both,
    ExactText,
    Json,
    Lexeme,
    Node,
    Not,
    NotationError,
    Ref,
    Repeat,
    Rule,
    Seq,
    Shortest,
    Tree,
    place_of,
    walk,
)

_CHOICE, _SEQUENCE, _ATOM = range(3)
_MAX_LINE: Final = 100


def write_lark(tree: Tree) -> tuple[str, list[str]]:
    """Return the text, and notes about what Lark says otherwise than the tree."""
    if tree.indentation:
        raise NotationError(
            tree.rules[tree.start].place,
            "indentation has no counterpart in a text of Lark: a Python program makes it there",
        )
    return _Writer(tree).written()


class _Writer:
    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._names: dict[str, str] = {}
        self._notes: list[str] = []
        self._extra: dict[Node, str] = {}
        taken: set[str] = set()
        terminals = {name for name, rule in tree.rules.items() if tree.scannerless and self._is_terminal(rule.body)}
        for name in (*tree.rules, *tree.terminals):
            plain = re.sub(r"\W", "_", name).strip("_") or "rule"
            plain = f"r{plain}" if plain[0].isdigit() else plain
            new = plain.upper() if name in tree.terminals or name in terminals else plain.lower()
            while new in taken or (new == "start" and name != tree.start):
                new += "_"
            taken.add(new)
            self._names[name] = new
        if tree.start not in terminals:
            self._names[tree.start] = "start"
        self._extra_start = tree.start in terminals

    @staticmethod
    def _is_terminal(body: Node) -> bool:
        return not any(isinstance(node, Ref | Json) for node in walk(body))

    def written(self) -> tuple[str, list[str]]:
        lines: list[str] = []
        if self._uses_extensions():
            lines += ["%llguidance {}", ""]
        if self._extra_start:
            lines.append(f"start: {self._names[self._tree.start]}")
        order = sorted(self._tree.rules.values(), key=lambda rule: rule.name != self._tree.start)
        lines += [self._definition(rule) for rule in order]
        if self._tree.terminals:
            lines.append("")
        lines += [self._definition(rule, terminal=True) for rule in self._tree.terminals.values()]
        lines += [f"{name}: {self._regular(node)}" for node, name in self._extra.items()]
        if self._tree.ignored:
            lines.append("")
        lines += [f"%ignore {self._regex(node)}" for node in self._tree.ignored]
        if self._tree.scannerless:
            self._notes.append(
                "Lark has a lexer that reads the longest terminal: texts that need a shorter one are refused"
            )
        return "\n".join(lines) + "\n", self._notes

    def _uses_extensions(self) -> bool:
        nodes = [rule.body for rule in (*self._tree.rules.values(), *self._tree.terminals.values())]
        return any(holds(node, kind) for node in [*nodes, *self._tree.ignored] for kind in (Both, Not, Shortest, Json))

    def _definition(self, rule: Rule, *, terminal: bool = False) -> str:
        name = self._names[rule.name]
        terminal = terminal or name.lstrip("_")[:1].isupper()
        priority = f".{rule.priority}" if rule.priority else ""
        options = rule.body.options if isinstance(rule.body, Alt) and not terminal else (rule.body,)
        shown = [self._regular(rule.body) if terminal else self._rule(option, _SEQUENCE) for option in options]
        line = f"{name}{priority}: {' | '.join(shown)}"
        return line if len(line) <= _MAX_LINE else f"{name}{priority}: " + ("\n" + " " * len(name) + "| ").join(shown)

    def _rule(self, node: Node, level: int) -> str:
        source, own = self._rule_source(node)
        return source if own >= level else f"({source})"

    def _rule_source(self, node: Node) -> tuple[str, int]:
        match node:
            case Ref(name):
                return self._names[name], _ATOM
            case ExactText("") | Seq(()):
                return "", _SEQUENCE
            case ExactText():
                return _text(node), _ATOM
            case Lexeme(item):
                return self._lexeme(item)
            case Json(schema):
                return f"%json {schema}", _ATOM
            case _ if self._tree.scannerless and self._is_terminal(node):
                return self._lexeme(node)
            case Seq(items):
                return " ".join(
                    self._rule(item, _ATOM if isinstance(item, Alt) else _SEQUENCE) for item in items
                ), _SEQUENCE
            case Alt(options):
                return " | ".join(self._rule(option, _SEQUENCE) for option in options), _CHOICE
            case Repeat(item, low, high):
                return self._rule(item, _ATOM) + _times(low, high), _SEQUENCE
        raise NotationError(place_of(node), "this has no form in a rule of Lark")

    def _lexeme(self, node: Node) -> tuple[str, int]:
        if any(holds(node, kind) for kind in (Both, Not, Shortest)):  # & and ~ belong to terminals with names
            return self._named(node), _ATOM
        return self._regex(node), _ATOM

    def _named(self, node: Node) -> str:
        if node not in self._extra:
            name = f"TERM_{len(self._extra) + 1}"
            while name in self._names.values():
                name += "_"
            self._extra[node] = name
        return self._extra[node]

    def _regular(self, node: Node) -> str:
        """A terminal's body; & and ~ are llguidance's."""
        match node:
            case Both(items):
                return " & ".join(self._operand(item) for item in items)
            case Not(item):
                return f"~{self._operand(item)}"
            case Shortest(item):
                source = self._operand(item)
                return f"{source} & ~({source} /(?s:.)+/)"
            case Seq(items) if any(holds(node, kind) for kind in (Both, Not, Shortest)):
                return " ".join(self._operand(item) for item in items)
            case Alt(options) if any(holds(node, kind) for kind in (Both, Not, Shortest)):
                return " | ".join(self._operand(option) for option in options)
            case Repeat(item, low, high) if any(holds(node, kind) for kind in (Both, Not, Shortest)):
                return self._operand(item) + _times(low, high)
            case _:
                return self._regex(node)

    def _operand(self, node: Node) -> str:
        source = self._regular(node)
        return source if source.startswith(("/", '"')) and " " not in source else f"({source})"

    def _regex(self, node: Node) -> str:
        if isinstance(node, ExactText) and node.value:
            return _text(node)
        if node == EMPTY:
            return '""'
        return f"/{regex_source(node).removeprefix('(?u)')}/"


def _times(low: int, high: int | None) -> str:
    source = counts(low, high)
    return (
        f"~{low}..{high}"
        if high is not None and source.startswith("{") and low != high
        else (f"~{low}" if low == high else source)
    )


def _text(node: ExactText) -> str:
    shown = json.dumps(node.value, ensure_ascii=False)
    shown = re.sub(r"\\b", r"\\u0008", shown) if "\b" in node.value else shown
    shown = "".join(char if char.isprintable() else escaped(char) for char in shown)
    return shown + ("i" if node.caseless else "")
