"""Read GBNF: the notation of llama.cpp, with what XGrammar adds. A grammar is scannerless: there is no lexer."""

import difflib
import re
from typing import Final

from aici_controllers.notations.regex_reader import class_char
from aici_controllers.notations.source import Cursor
from aici_controllers.notations.tree import (
    ANY_CHAR,
    Chars,
    ExactText,
    Node,
    NotationError,
    Place,
    Ref,
    Repeat,
    Rule,
    Tree,
    alternatives,
    sequence,
    walk,
)

_HEAD: Final = re.compile(r"[\w.-]+[ \t]*::=")
_COUNT: Final = re.compile(r"\{\s*(\d*)\s*(,?)\s*(-1|\d*)\s*\}")
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "v": "\v", "a": "\a", "0": "\0", "e": "\x1b"}
_HEX_DIGITS: Final = {"x": 2, "u": 4, "U": 8}
_MAX_DEPTH: Final = 100
_START: Final = "root"


def read_gbnf(text: str) -> Tree:
    """Return the tree of a GBNF grammar. Raise NotationError where the text is wrong or not supported."""
    return _Reader(text).tree()


class _Reader:
    def __init__(self, text: str) -> None:
        self._source = Cursor(text)
        self._rules: dict[str, Rule] = {}
        self._depth = 0

    def tree(self) -> Tree:
        self._skip()
        while not self._source.done:
            self._rule()
            self._skip()
        if _START not in self._rules:
            place = next((rule.place for rule in self._rules.values()), Place(1, 1))
            raise NotationError(place, self._undefined(_START, f"GBNF begins with the rule {_START}, which"))
        for rule in self._rules.values():
            for node in walk(rule.body):
                if isinstance(node, Ref) and node.name not in self._rules:
                    raise NotationError(node.place, self._undefined(node.name, f"the rule {node.name}"))
        used = _reachable(self._rules)
        warnings = tuple(
            (rule.place, f"the rule {name} is never used") for name, rule in self._rules.items() if name not in used
        )
        rules = {name: rule for name, rule in self._rules.items() if name in used}
        return Tree(syntax="gbnf", start=_START, rules=rules, scannerless=True, warnings=warnings)

    def _undefined(self, name: str, before: str) -> str:
        near = difflib.get_close_matches(name, [*self._rules], n=1)
        return f"{before} is not defined" + (f": did you mean {near[0]}?" if near else "")

    def _skip(self) -> None:
        source = self._source
        while not source.done:
            if source.peek().isspace():
                source.take()
            elif source.peek() == "#":
                end = source.text.find("\n", source.offset)
                source.offset = len(source.text) if end < 0 else end
            else:
                return

    def _inside(self) -> bool:
        """Skip blanks inside of a rule. Return False at the end of the rule: where `name ::=` begins the next."""
        self._skip()
        return not self._source.done and not (self._depth == 0 and _HEAD.match(self._source.text, self._source.offset))

    def _rule(self) -> None:
        source, place = self._source, self._source.place()
        name = self._name("a rule begins here: name ::= ...")
        self._skip()
        if not source.accept("::="):
            hint = " (Lark has : here)" if source.peek() == ":" else ""
            raise source.error(f"expected ::= after {name}{hint}")
        body = self._alternatives()
        if self._inside():
            raise source.error(f"{source.peek()!r} is not expected here")
        if name in self._rules:
            line = self._rules[name].place.line
            raise NotationError(place, f"the rule {name} is defined a second time; the first is in line {line}")
        self._rules[name] = Rule(name, body, place)

    def _name(self, expected: str) -> str:
        found = re.compile(r"[\w.-]+").match(self._source.text, self._source.offset)
        if not found:
            shown = self._source.text[self._source.offset : self._source.offset + 12].split("\n")[0]
            raise self._source.error(f"{expected}; found {shown!r}")
        self._source.offset = found.end()
        return found[0]

    def _alternatives(self) -> Node:
        options = [self._sequence()]
        while self._inside() and self._source.accept("|"):
            options.append(self._sequence())
        return alternatives(*options)

    def _sequence(self) -> Node:
        items: list[Node] = []
        while self._inside() and self._source.peek() not in "|)":
            items.append(self._repeated())
        return sequence(*items)

    def _repeated(self) -> Node:
        source = self._source
        item = self._atom()
        while self._inside():
            at = source.offset
            if source.peek() in "*+?":
                low, high = {"*": (0, None), "+": (1, None), "?": (0, 1)}[source.take()]
            elif source.peek() == "{":
                count = _COUNT.match(source.text, at)
                if not count or not (count[1] or count[2]):
                    raise source.error("a repetition is {3}, {3,}, {,5} or {3,5}")
                source.offset, low = count.end(), int(count[1] or 0)
                high = low if not count[2] else int(count[3]) if count[3] not in ("", "-1") else None
            else:
                break
            if high is not None and high < low:
                raise source.error("the least repeat count is above the greatest", at)
            item = Repeat(item, low, high)
        return item

    def _atom(self) -> Node:
        source, place, at = self._source, self._source.place(), self._source.offset
        match source.peek():
            case '"':
                return self._text(place)
            case "[":
                return Chars(self._class(), False, place)
            case ".":
                source.take()
                return Chars(ANY_CHAR.source, False, place)
            case "(":
                source.take()
                self._skip()
                if source.peek() == "=" or source.peek() == "!":
                    raise source.error("look-ahead is not supported", at)
                self._depth += 1
                if self._depth > _MAX_DEPTH:
                    raise source.error(f"brackets are nested deeper than {_MAX_DEPTH}", at)
                body = self._alternatives()
                self._depth -= 1
                if not source.accept(")"):
                    raise source.error("expected ): this bracket is not closed", at)
                return body
            case "<" | "!":
                raise source.error("special tokens are not text, and a grammar is about text: leave <...> out")
            case "'":
                raise source.error('a text stands in double quotes: "..."')
            case "/":
                raise source.error("a regex /.../ is not GBNF: write it as classes, texts and repetitions")
        name = self._name("expected a name, a text or a class")
        if source.peek() == "(" and name in ("TagDispatch", "Token", "ExcludeToken", "TokenTagDispatch"):
            raise source.error(f"XGrammar's {name}(...) is not supported", at)
        return Ref(name, (), place)

    def _text(self, place: Place) -> Node:
        source, at = self._source, self._source.offset
        source.take()
        value = ""
        while source.peek() != '"':
            if source.done or source.peek() == "\n":
                raise source.error('this text has no end: " is missing on this line', at)
            value += self._char()
        source.take()
        return ExactText(value, False, place)

    def _class(self) -> str:
        source, at = self._source, self._source.offset
        source.take()
        negated = source.accept("^")
        items: list[str] = []
        while source.peek() != "]":
            if source.done or source.peek() == "\n":
                raise source.error("this class has no end: ] is missing on this line", at)
            known = source.peek() == "\\" and source.peek(1)
            if known and known in "dDwWsS":
                source.take()
                items.append(_perl_class(source.take()))
                continue
            low = self._char()
            high = low
            if source.peek() == "-" and source.peek(1) not in ("]", ""):
                source.take()
                high = self._char()
                if high < low:
                    raise source.error(f"the range {low}-{high} goes backwards", at)
            items.append(class_char(low) if low == high else f"{class_char(low)}-{class_char(high)}")
        source.take()
        if not items:
            return ANY_CHAR.source if negated else "[^\\x00-\\U0010ffff]"
        return f"[{'^' if negated else ''}{''.join(items)}]"

    def _char(self) -> str:
        source, at = self._source, self._source.offset
        char = source.take()
        if char != "\\":
            return char
        letter = source.take()
        if letter in _HEX_DIGITS:
            digits = re.compile(f"[0-9a-fA-F]{{{_HEX_DIGITS[letter]}}}").match(source.text, source.offset)
            code = int(digits[0], 16) if digits else -1
            if not digits or code > 0x10FFFF or 0xD800 <= code < 0xE000:
                raise source.error(
                    f"\\{letter} is followed by {_HEX_DIGITS[letter]} hexadecimal digits of a character", at
                )
            source.offset = digits.end()
            return chr(code)
        if letter in _ESCAPES:
            return _ESCAPES[letter]
        if letter == "" or (letter.isascii() and letter.isalnum()):
            raise source.error(f"the escape \\{letter} is not known", at)
        return letter


def _perl_class(letter: str) -> str:
    sets = {"d": "0-9", "w": "a-zA-Z0-9_", "s": " \\t\\n\\r\\f\\v"}
    return sets.get(letter) or f"\\{letter}"


def _reachable(rules: dict[str, Rule]) -> set[str]:
    found, todo = {_START}, [_START]
    while todo:
        names = {node.name for node in walk(rules[todo.pop()].body) if isinstance(node, Ref)}
        todo += names - found
        found |= names
    return found
