"""Read the guest's own syntax (`.y`) into a tree, to write it in another notation. The guest reads `.y` by itself."""

import re
from typing import Final, NamedTuple

from aici_controllers.notations.regex_reader import RegexReader
from aici_controllers.notations.source import Cursor
from aici_controllers.notations.tree import (
    ExactText,
    Lexeme,
    Node,
    NotationError,
    Place,
    Ref,
    Rule,
    Tree,
    alternatives,
    sequence,
    walk,
)

_TOKEN: Final = re.compile(
    r"(?P<blank>\s+|//[^\n]*|/\*.*?\*/|%\{.*?%\})|(?P<end>%%)|(?P<directive>%[\w-]+)|(?P<name>[A-Za-z_][\w.-]*)"
    r"|\"(?P<double>[^\"\n]+)\"|'(?P<single>[^'\n]+)'|(?P<mark>[:|;])|(?P<action>\{)|(?P<tag><[^>\n]*>)|(?P<number>\d+)",
    re.DOTALL,
)


class _Token(NamedTuple):
    kind: str
    text: str
    place: Place
    at: int


def read_y(text: str) -> Tree:
    """Return the tree of a grammar in the guest's syntax. Raise NotationError where the text is wrong."""
    return _Reader(text).tree()


class _Reader:
    def __init__(self, text: str) -> None:
        self._source = Cursor(text)
        self._tokens = self._cut(text)
        self._tokens.append(_Token("eof", "", self._source.place(len(text)), len(text)))
        self._at = 0
        self._declared: set[str] = set()
        self._options: set[str] = set()
        self._start = ""
        self._warnings: list[tuple[Place, str]] = []

    def _cut(self, text: str) -> list[_Token]:
        tokens: list[_Token] = []
        at = 0
        while at < len(text):
            if sum(token.kind == "end" for token in tokens) == 2:
                break
            found = _TOKEN.match(text, at)
            if not found:
                raise self._source.error(f"unexpected character {text[at]!r}", at)
            kind = str(found.lastgroup)
            start, at = at, found.end()
            if kind == "action":
                at = self._end_of_action(start)
            elif kind in ("double", "single"):
                tokens.append(_Token("quoted", found[kind], self._source.place(start), start + 1))
            elif kind not in ("blank", "tag", "number"):
                tokens.append(_Token(kind, found[0], self._source.place(start), start))
        return tokens

    def _end_of_action(self, start: int) -> int:
        depth = 0
        for at in range(start, len(self._source.text)):
            depth += {"{": 1, "}": -1}.get(self._source.text[at], 0)
            if depth == 0:
                return at + 1
        raise self._source.error("this action has no end: } is missing", start)

    def _take(self) -> _Token:
        self._at += 1
        return self._tokens[self._at - 1]

    @property
    def _next(self) -> _Token:
        return self._tokens[self._at]

    def tree(self) -> Tree:
        while self._next.kind != "end":
            if self._next.kind == "eof":
                raise NotationError(self._next.place, "%% is missing before the first rule")
            self._declaration()
        self._take()
        rules: dict[str, Rule] = {}
        while self._next.kind == "name":
            rule = self._rule()
            rules[rule.name] = rule
        if self._next.kind not in ("eof", "end"):
            raise NotationError(self._next.place, "expected a rule: name : alternatives ;")
        ignored = _quoted_parts(rules.pop("SKIP", None))
        if never := rules.pop("NEVER", None):
            self._warnings.append((never.place, "NEVER has no counterpart in another notation and is left out"))
        start = self._start or next(iter(rules), "")
        if start not in rules:
            raise NotationError(Place(1, 1), "the grammar has no rules")
        terminals = {name: rule for name, rule in rules.items() if name != start and self._is_terminal(rule)}
        for name, rule in terminals.items():
            terminals[name] = Rule(name, alternatives(*_quoted_parts(rule)), rule.place)
            del rules[name]
        for rule in rules.values():
            for node in walk(rule.body):
                if isinstance(node, Ref) and node.name not in rules and node.name not in terminals:
                    raise NotationError(node.place, f"{node.name} is neither a rule nor declared with %token")
        return Tree(
            syntax="y",
            start=start,
            rules=rules,
            terminals=terminals,
            ignored=ignored,
            scannerless="scannerless" in self._options,
            warnings=tuple(self._warnings),
        )

    def _is_terminal(self, rule: Rule) -> bool:
        """A capital rule of regexes is how the guest names a terminal."""
        parts = (
            rule.body.options if not isinstance(rule.body, Lexeme) and hasattr(rule.body, "options") else (rule.body,)
        )
        return (
            rule.name.isupper() and "scannerless" not in self._options and all(isinstance(one, Lexeme) for one in parts)
        )

    def _declaration(self) -> None:
        token = self._take()
        words = []
        while self._next.kind in ("name", "quoted"):
            words.append(self._take())
        if token.text == "%start" and words:
            self._start = words[0].text
        elif token.text == "%token":
            self._declared |= {word.text for word in words}
        elif token.text == "%indentation":
            raise NotationError(token.place, "%indentation has no counterpart in another notation")
        elif token.text == "%option":
            self._options |= {word.text for word in words}
        elif token.text in ("%left", "%right", "%nonassoc", "%precedence"):
            self._declared |= set()
            if token.text == "%nonassoc":
                self._warnings.append((token.place, "%nonassoc has no counterpart: a < b < c is accepted there"))

    def _rule(self) -> Rule:
        name = self._take()
        if self._take().text != ":":
            raise NotationError(name.place, f"expected ':' after {name.text}")
        options = [self._alternative()]
        while self._next.text == "|" and self._next.kind == "mark":
            self._take()
            options.append(self._alternative())
        if self._next.kind == "mark" and self._next.text == ";":
            self._take()
        return Rule(name.text, alternatives(*options), name.place)

    def _starts_rule(self) -> bool:
        after = self._tokens[self._at + 1]
        return (after.kind, after.text) == ("mark", ":")

    def _alternative(self) -> Node:
        items: list[Node] = []
        while True:
            token = self._next
            if token.kind == "directive":
                self._take()
                if token.text in ("%prec", "%dprec", "%merge") and self._next.kind in ("name", "quoted"):
                    self._take()
            elif token.kind == "quoted":
                items.append(self._quoted(self._take()))
            elif token.kind == "name" and not self._starts_rule():
                self._take()
                is_word = token.text in self._declared
                items.append(
                    ExactText(token.text, self._caseless, token.place) if is_word else Ref(token.text, (), token.place)
                )
            else:
                return sequence(*items)

    @property
    def _caseless(self) -> bool:
        return "caseless" in self._options

    def _quoted(self, token: _Token) -> Node:
        text = token.text
        if not (len(text) > 1 and text[0] == text[-1] == "/"):
            return ExactText(text, self._caseless, token.place)
        self._source.offset = token.at + 1
        node = RegexReader(self._source, token.at + len(text) - 1).read()
        return node if "scannerless" in self._options else Lexeme(node, token.place)


def _quoted_parts(rule: Rule | None) -> tuple[Node, ...]:
    if rule is None:
        return ()
    parts = getattr(rule.body, "options", (rule.body,))
    return tuple(part.item if isinstance(part, Lexeme) else part for part in parts)
