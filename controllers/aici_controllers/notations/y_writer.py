"""Print a tree in the syntax of the guest `grammar`: helper rules for repetitions, regexes for regular parts."""

import re
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import groupby
from typing import Final, NamedTuple

from aici_controllers.notations.facts import NEVER, holds, is_nullable, nonempty
from aici_controllers.notations.regex_writer import regex_source
from aici_controllers.notations.tree import (
    EMPTY,
    NOWHERE,
    Alt,
    ExactText,
    Json,
    Lexeme,
    Node,
    NotationError,
    Pattern,
    Place,
    Ref,
    Repeat,
    Seq,
    Tree,
    place_of,
    sequence,
)

_MAX_WAYS: Final = 16
"""Alternatives that one alternative with options in it may become; beyond that, the options get rules of their own."""
_MAX_COUNT: Final = 1000
_RESERVED: Final = ("SKIP", "NEVER")
_QUOTE_OR_LINE: Final = re.compile(r"""(\\[^"\n\r])|\\?(["\n\r])""")
_LOOKS_ESCAPED: Final = re.compile(r"\\[nrt\"']")


class Symbol(NamedTuple):
    source: str
    place: Place = NOWHERE


Way = tuple[Symbol, ...]
"""One alternative of a rule."""


@dataclass(frozen=True, slots=True)
class GuestText:
    """The text for the guest. `marks`: line and column there → place in the user's file, in order."""

    text: str
    marks: list[tuple[tuple[int, int], Place]] = field(default_factory=list)

    def place(self, line: int, column: int) -> Place:
        """Return the place in the user's file of a line and column here."""
        at = bisect_right(self.marks, (line, column), key=lambda mark: mark[0])
        return self.marks[at - 1][1] if at else NOWHERE


def write_y(tree: Tree) -> GuestText:
    """Return the grammar in the guest's syntax. Raise NotationError for what the guest cannot read."""
    return _Writer(tree).written()


class _Writer:
    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._names: dict[str, str] = {}
        self._taken: set[str] = set(_RESERVED)
        self._helpers: dict[Node, str] = {}
        self._rules: list[tuple[str, Place, list[Way]]] = []
        self._current = ""
        for name in (*tree.rules, *tree.terminals, *(tree.indentation or ())):
            if name in self._names:
                continue
            self._names[name] = self._unused(re.sub(r"\W", "_", name))

    def _unused(self, name: str) -> str:
        name = name if name[0].isalpha() or name[0] == "_" else f"r_{name}"
        if not name.isascii():
            name = "".join(char if char.isascii() else f"u{ord(char):x}" for char in name)
        while name in self._taken:
            name += "_"
        self._taken.add(name)
        return name

    def written(self) -> GuestText:
        tree = self._tree
        for rule in tree.rules.values():
            self._current = self._names[rule.name]
            at = len(self._rules)
            ways = self._ways(rule.body)
            self._rules.insert(at, (self._current, rule.place, ways))  # before its helpers
        for terminal in tree.terminals.values():
            ways = self._lexeme(terminal.body, terminal.place)
            self._rules.append((self._names[terminal.name], terminal.place, ways))
        out = _Lines()
        out.add("%option scannerless" if tree.scannerless else "%option ambiguous")
        for line in (*self._indentation(), *self._preferences()):
            out.add(line)
        out.add(f"%start {self._names[tree.start]}", tree.rules[tree.start].place)
        out.add("%%")
        for name, place, ways in self._rules:
            out.rule(name, place, ways)
        if ignored := [way[0] for node in tree.ignored for way in self._lexeme(node, place_of(node)) if way]:
            # A group around a pattern makes it another terminal than one of the same pattern that a rule uses.
            used = {symbol.source for _, _, ways in self._rules for way in ways for symbol in way}
            apart = [Symbol(_grouped(one.source), one.place) if one.source in used else one for one in ignored]
            out.rule("SKIP", NOWHERE, [(one,) for one in dict.fromkeys(apart)])
        return GuestText(out.text(), out.marks)

    def _indentation(self) -> Iterable[str]:
        """As Lark's Indenter: newlines within brackets are skipped."""
        if not self._tree.indentation:
            return
        yield f"%indentation {' '.join(self._names[name] for name in self._tree.indentation)}"
        used = {symbol.source for _, _, ways in self._rules for way in ways for symbol in way}
        pairs = [pair for pair in (('"("', '")"'), ('"["', '"]"'), ('"{"', '"}"')) if used.issuperset(pair)]
        if pairs:
            yield f"%brackets {' '.join(text for pair in pairs for text in pair)}"

    def _preferences(self) -> Iterable[str]:
        """Lark's priorities of terminals. The guest has one line a level, the highest last, and all others below."""
        levels: dict[str, int] = {}
        for terminal in self._tree.terminals.values():
            for way in self._lexeme(terminal.body, terminal.place):
                levels |= {symbol.source: terminal.priority or 0 for symbol in way}
        if not any(levels.values()):
            return
        for _, _, ways in self._rules:
            for way in ways:
                for symbol in way:
                    if symbol.source[0] in "\"'":
                        levels.setdefault(symbol.source, 0)
        for level in sorted(set(levels.values())):
            yield f"%prefer {' '.join(source for source, its in levels.items() if its == level)}"

    # The alternatives that a node stands for.

    def _ways(self, node: Node) -> list[Way]:
        if self._is_whole(node):
            return self._whole(node)
        match node:
            case Alt(options):
                return _distinct(way for option in options for way in self._ways(option))
            case Seq(items):
                return self._sequence(items)
            case Repeat(item, low, high):
                return self._repetition(item, low, high)
            case Ref(name, _, place):
                return [(Symbol(self._names[name], place),)]
            case Lexeme(item, place):
                return self._lexeme(item, place)
            case ExactText(value, _, place):
                return [(Symbol(_quoted(node), place),)] if value else [()]
            case Json(schema, place):
                return [(Symbol(f"%json {schema}", place),)]
            case Pattern(source, place):
                return [(Symbol(f'"/{_in_quotes(source)}/"', place),)]
        raise NotationError(place_of(node), "this is no part of a rule")

    def _is_whole(self, node: Node) -> bool:
        """In a grammar without lexer, a regular part is one regex."""
        return self._tree.scannerless and _is_regular(node) and not isinstance(node, Alt)

    def _whole(self, node: Node) -> list[Way]:
        if node in (EMPTY, ExactText("")):
            return [()]
        return [(Symbol(_quoted(node), place_of(node)),)]

    def _sequence(self, items: tuple[Node, ...]) -> list[Way]:
        if self._tree.scannerless:
            grouped = groupby(items, key=_is_regular)
            items = tuple(part for regular, run in grouped for part in ((_joined(run),) if regular else tuple(run)))
        result: list[Way] = [()]
        for item in items:
            ways = self._ways(item)
            if len(ways) > 1 and len(ways) * len(result) > _MAX_WAYS:
                ways = [(self._helper(item, ways),)]
            result = [before + way for before in result for way in ways]
        return _distinct(result)

    def _repetition(self, item: Node, low: int, high: int | None) -> list[Way]:
        if high == 0:
            return [()]
        if max(low, high or 0) > _MAX_COUNT:
            raise NotationError(place_of(item), f"a repetition of rules is at most {_MAX_COUNT} times")
        if high is None:
            ways = self._product(
                [self._one(item)] * (low - 1) + [[(self._plus(item),)]] if low else [[(self._plus(item),)]]
            )
            return ways if low else [(), *ways]
        ways = [()] if low == 0 else self._product([self._one(item)] * low)
        if high == low:
            return ways
        if high - low == 1:
            return _distinct([*ways, *(before + way for before in ways for way in self._one(item))])
        more = self._up_to(item, high - low)
        return _distinct([*ways, *((*before, more) for before in ways)])

    def _one(self, item: Node) -> list[Way]:
        ways = self._ways(item)
        return ways if len(ways) == 1 else [(self._helper(item, ways),)]

    @staticmethod
    def _product(items: list[list[Way]]) -> list[Way]:
        result: list[Way] = [()]
        for ways in items:
            result = [before + way for before in result for way in ways]
        return result

    def _helper(self, node: Node, ways: list[Way]) -> Symbol:
        if node not in self._helpers:
            self._helpers[node] = self._unused(f"{self._current}_{len(self._helpers) + 1}")
            self._rules.append((self._helpers[node], place_of(node), ways))
        return Symbol(self._helpers[node], place_of(node))

    def _plus(self, item: Node) -> Symbol:
        key = Repeat(item, 1, None)
        if key not in self._helpers:
            self._helpers[key] = name = self._unused(f"{self._current}_{len(self._helpers) + 1}")
            ways = [way for way in self._ways(item) if way]
            again = [(Symbol(name, place_of(item)), *way) for way in ways]
            empty: list[Way] = [()] if len(ways) < len(self._ways(item)) else []
            self._rules.append((name, place_of(item), [*empty, *([] if empty else ways), *again]))
        return Symbol(self._helpers[key], place_of(item))

    def _up_to(self, item: Node, count: int) -> Symbol:
        """The helper for one to `count` times."""
        one = self._one(item)
        symbol: Symbol | None = None
        for times in range(1, count + 1):
            key = Repeat(item, 1, times)
            if key not in self._helpers:
                self._helpers[key] = self._unused(f"{self._current}_{len(self._helpers) + 1}")
                more = [(*way, symbol) for way in one] if symbol else []
                self._rules.append((self._helpers[key], place_of(item), [*one, *more]))
            symbol = Symbol(self._helpers[key], place_of(item))
        assert symbol
        return symbol

    def _lexeme(self, node: Node, place: Place) -> list[Way]:
        """A terminal that matches the empty text may be absent."""
        nullable = is_nullable(node)
        some = nonempty(node)
        if some == NEVER and nullable:
            return [()]
        symbol = Symbol(_quoted(some), place)
        return [(), (symbol,)] if nullable else [(symbol,)]


def _is_regular(node: Node) -> bool:
    return not any(holds(node, kind) for kind in (Ref, Json, Pattern))


def _joined(run: Iterable[Node]) -> Node:
    return sequence(*run)


def _distinct(ways: Iterable[Way]) -> list[Way]:
    known: dict[tuple[str, ...], Way] = {}
    for way in ways:
        known.setdefault(tuple(symbol.source for symbol in way), way)
    return list(known.values())


def _quoted(node: Node) -> str:
    """Return a keyword or a regex in quotes."""
    if isinstance(node, ExactText) and not (node.caseless and node.value.lower() != node.value.upper()):
        text = node.value
        is_regex = len(text) > 1 and text[0] == text[-1] == "/"
        quote = '"' if '"' not in text else "'"
        if text.isprintable() and quote not in text and not is_regex and not _LOOKS_ESCAPED.search(text):
            return f"{quote}{text}{quote}"
    return f'"/{regex_source(node)}/"'


def _in_quotes(pattern: str) -> str:
    """Return a pattern for the guest's quotes: without quotes and line ends of its own."""
    return _QUOTE_OR_LINE.sub(lambda found: f"\\x{ord(found[2]):02x}" if found[2] else found[0], pattern)


def _grouped(source: str) -> str:
    if source.startswith('"/'):
        return f'"/(?:{source[2:-2]})/"'
    return _quoted(Repeat(ExactText(source[1:-1]), 1, 2)).replace("{1,2}", "{1}")


class _Lines:
    """Lines of the guest's syntax, with the places that they come from."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self.marks: list[tuple[tuple[int, int], Place]] = []

    def add(self, line: str, place: Place = NOWHERE) -> None:
        self._lines.append(line)
        if place != NOWHERE:
            self.marks.append(((len(self._lines), 1), place))

    def rule(self, name: str, place: Place, ways: list[Way]) -> None:
        self.add(f"{name}", place)
        for at, way in enumerate(ways):
            line = "  | " if at else "  : "
            self.marks.append(
                ((len(self._lines) + 1, 1), place if not way or way[0].place == NOWHERE else way[0].place)
            )
            for symbol in way or (Symbol("%empty"),):
                if symbol.place != NOWHERE:
                    self.marks.append(((len(self._lines) + 1, len(line) + 1), symbol.place))
                line += f"{symbol.source} "
            self._lines.append(line.rstrip())
        self.add("  ;", place)

    def text(self) -> str:
        return "\n".join(self._lines) + "\n"
