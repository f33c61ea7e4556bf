"""Read a regular expression as it stands in a grammar: the syntax that Python's `re` and Rust's `regex` share."""

import re
from typing import Final

from aici_controllers.notations.source import Cursor
from aici_controllers.notations.tree import (
    ANY_CHAR,
    EMPTY,
    Both,
    Chars,
    ExactText,
    Look,
    Node,
    Not,
    Repeat,
    alternatives,
    sequence,
)

_CONTROLS: Final = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "v": "\v", "a": "\a"}
_HEX_DIGITS: Final = {"x": 2, "u": 4, "U": 8}
_ASCII: Final = {
    "\\d": "[0-9]",
    "\\D": "[^0-9]",
    "\\w": "[a-zA-Z0-9_]",
    "\\W": "[^a-zA-Z0-9_]",
    "\\s": "[ \\t\\n\\r\\f\\v]",
    "\\S": "[^ \\t\\n\\r\\f\\v]",
}
_POSIX: Final = {
    "alpha": "a-zA-Z",
    "digit": "0-9",
    "alnum": "a-zA-Z0-9",
    "upper": "A-Z",
    "lower": "a-z",
    "space": " \\t\\n\\r\\f\\v",
    "blank": " \\t",
    "punct": "!-\\/:-@\\[-`{-~",
    "xdigit": "0-9A-Fa-f",
    "word": "a-zA-Z0-9_",
}
_COUNT: Final = re.compile(r"\{(?=[\d,])(\d*)(,?)(\d*)\}")
_MAX_DEPTH: Final = 100


class RegexReader:
    """Reads `source` from its cursor up to the offset `end`. `flags`: letters of Python's `re`."""

    def __init__(self, source: Cursor, end: int, flags: str = "") -> None:
        self._source = source
        self._end = end
        self._flags = frozenset(flags)
        self._depth = 0
        self._stops = "|)"

    def read(self) -> Node:
        if flags := re.compile(r"\(\?([aimsuxL]+)\)").match(self._source.text, self._source.offset, self._end):
            self._source.offset = flags.end()
            self._flags |= frozenset(flags[1])
        node = self._alternation()
        if not self._done():
            raise self._source.error("unmatched ')' in the regex")
        return node

    def _done(self) -> bool:
        return self._source.offset >= self._end

    def _peek(self) -> str:
        return "" if self._done() else self._source.peek()

    def _starts(self, literal: str) -> bool:
        return self._source.offset + len(literal) <= self._end and self._source.starts(literal)

    def _accept(self, literal: str) -> bool:
        return self._starts(literal) and self._source.accept(literal)

    def _skip_ignored(self) -> None:
        """Skip comments, and under the flag x white space."""
        while not self._done():
            if self._starts("(?#"):
                while not self._done() and self._source.take() != ")":
                    pass
            elif "x" in self._flags and self._peek().isspace():
                self._source.take()
            elif "x" in self._flags and self._peek() == "#":
                while not self._done() and self._source.take() != "\n":
                    pass
            else:
                return

    def _alternation(self) -> Node:
        options = [self._sequence()]
        while self._accept("|"):
            options.append(self._sequence())
        return alternatives(*options)

    def _sequence(self) -> Node:
        items: list[Node] = []
        self._skip_ignored()
        while not self._done() and self._peek() not in self._stops:
            item = self._quantified()
            last = items[-1] if items else None
            if isinstance(item, ExactText) and isinstance(last, ExactText) and item.caseless == last.caseless:
                items[-1] = ExactText(last.value + item.value, last.caseless, last.place)
            else:
                items.append(item)
            self._skip_ignored()
        return sequence(*items)

    def _quantified(self) -> Node:
        item = self._atom()
        self._skip_ignored()
        at = self._source.offset
        if self._accept("*"):
            low, high = 0, None
        elif self._accept("+"):
            low, high = 1, None
        elif self._accept("?"):
            low, high = 0, 1
        elif count := _COUNT.match(self._source.text, at, self._end):
            self._source.offset = count.end()
            low = int(count[1] or 0)
            high = int(count[3]) if count[3] else None if count[2] else low
            if high is not None and high < low:
                raise self._source.error("the least repeat count is above the greatest", at)
        else:
            # A sequence joins texts, and a quantifier after a text is for its last character: atoms have one.
            return item
        if self._peek() == "+":
            raise self._source.error("possessive quantifiers are not supported")
        lazy = self._accept("?")
        if isinstance(item, Look):
            raise self._source.error("a look-ahead or look-behind under a quantifier is not supported", at)
        return Repeat(item, low, high, lazy and low != high)

    def _atom(self) -> Node:
        place, at = self._source.place(), self._source.offset
        caseless = "i" in self._flags
        char = self._peek()
        match char:
            case "(":
                return self._group()
            case "[":
                return Chars(self._class(), caseless, place)
            case ".":
                self._source.take()
                return Chars("(?s:.)" if "s" in self._flags else ".", False, place)
            case "^":
                self._source.take()
                start: Node = Look(ANY_CHAR, False, True, place)
                return alternatives(start, Look(ExactText("\n"), False, False, place)) if "m" in self._flags else start
            case "$":
                self._source.take()
                end: Node = Look(ANY_CHAR, True, True, place)
                return alternatives(end, Look(ExactText("\n"), True, False, place)) if "m" in self._flags else end
            case "*" | "+" | "?":
                raise self._source.error("nothing to repeat", at)
            case "\\":
                return self._escape()
        self._source.take()
        return ExactText(char, caseless, place)

    def _group(self) -> Node:
        place, at, outside = self._source.place(), self._source.offset, self._flags
        for opening, ahead, negative in (
            ("(?=", True, False),
            ("(?!", True, True),
            ("(?<=", False, False),
            ("(?<!", False, True),
        ):
            if self._accept(opening):
                return Look(self._group_body(at, outside), ahead, negative, place)
        if self._accept("(?~"):
            return Not(self._group_body(at, outside))
        if self._starts("(?&"):
            return self._both(at, outside)
        named = re.compile(r"\(\?P?<\w+>").match(self._source.text, at, self._end)
        flags = re.compile(r"\(\?([aimsux]*)(?:-([imsx]+))?:").match(self._source.text, at, self._end)
        if named:
            self._source.offset = named.end()
        elif flags:
            self._source.offset = flags.end()
            self._flags = (self._flags | frozenset(flags[1])) - frozenset(flags[2] or "")
        elif self._starts("(?"):
            kinds = {"(?P=": "back-references", "(?>": "atomic groups", "(?(": "conditional groups"}
            what = next((kind for opening, kind in kinds.items() if self._starts(opening)), "groups of this kind")
            raise self._source.error(f"{what} are not supported in a regex", at)
        else:
            self._source.take()
        return self._group_body(at, outside)

    def _both(self, at: int, outside: frozenset[str]) -> Node:
        """The guest's (?&x&y): what both match."""
        items: list[Node] = []
        while self._accept("(?&" if not items else "&"):
            before, self._stops = self._stops, "|)&"
            items.append(self._alternation())
            self._stops = before
        self._flags = outside
        if not self._accept(")"):
            raise self._source.error("missing ')' for this group of the regex", at)
        return Both(tuple(items))

    def _group_body(self, at: int, outside: frozenset[str]) -> Node:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise self._source.error(f"groups are nested deeper than {_MAX_DEPTH}", at)
        before, self._stops = self._stops, "|)"
        body = self._alternation()
        self._stops = before
        self._depth -= 1
        self._flags = outside
        if not self._accept(")"):
            raise self._source.error("missing ')' for this group of the regex", at)
        # A group of one text is no longer a part of the text before it.
        return body

    def _escape(self) -> Node:
        place, at = self._source.place(), self._source.offset
        caseless = "i" in self._flags
        self._source.take()
        letter = self._peek()
        if letter in ("d", "D", "w", "W", "s", "S"):
            self._source.take()
            return Chars(_ASCII[f"\\{letter}"] if "a" in self._flags else f"\\{letter}", False, place)
        if letter in ("p", "P"):
            return Chars(self._property(at), False, place)
        if letter == "b" or letter == "B":
            self._source.take()
            return _boundary(letter == "B")
        if letter == "A":
            self._source.take()
            return Look(ANY_CHAR, False, True, place)
        if letter in ("Z", "z"):
            self._source.take()
            return Look(ANY_CHAR, True, True, place)
        if letter.isdigit() and letter != "0":
            raise self._source.error("back-references are not supported in a regex", at)
        return ExactText(self._escaped_char(at), caseless, place)

    def _escaped_char(self, at: int) -> str:
        """Return the character of an escape; the cursor is behind the backslash, which is at `at`."""
        letter = self._source.take() if not self._done() else ""
        if letter == "":
            raise self._source.error("the regex ends with a backslash", at)
        if letter in _CONTROLS:
            return _CONTROLS[letter]
        if letter == "0":
            octal = re.compile(r"[0-7]{0,2}").match(self._source.text, self._source.offset, self._end)
            assert octal
            self._source.offset = octal.end()
            return chr(int(octal[0] or "0", 8))
        if letter in _HEX_DIGITS:
            pattern = rf"\{{([0-9a-fA-F]+)\}}|([0-9a-fA-F]{{{_HEX_DIGITS[letter]}}})"
            digits = re.compile(pattern).match(self._source.text, self._source.offset, self._end)
            code = int(digits[1] or digits[2], 16) if digits else -1
            if not digits or code > 0x10FFFF or 0xD800 <= code < 0xE000:
                raise self._source.error(f"\\{letter} is followed by {_HEX_DIGITS[letter]} hexadecimal digits", at)
            self._source.offset = digits.end()
            return chr(code)
        if letter.isascii() and letter.isalnum():
            raise self._source.error(f"the escape \\{letter} is not known in a regex", at)
        return letter

    def _property(self, at: int) -> str:
        found = re.compile(r"[pP](\{[^}]*\}|[A-Z])").match(self._source.text, self._source.offset, self._end)
        if not found:
            raise self._source.error("\\p is followed by a property such as {Lu}", at)
        self._source.offset = found.end()
        return f"\\{found[0]}"

    def _class(self) -> str:
        at = self._source.offset
        self._source.take()
        out = "["
        if self._accept("^"):
            out += "^"
        first = True
        while first or self._peek() != "]":
            if self._done():
                raise self._source.error("this class of the regex has no end: ']' is missing", at)
            out += self._class_item()
            first = False
        self._source.take()
        return f"{out}]"

    def _class_item(self) -> str:
        at = self._source.offset
        posix = re.compile(r"\[:(\w+):\]").match(self._source.text, at, self._end)
        if posix and posix[1] in _POSIX:
            self._source.offset = posix.end()
            return _POSIX[posix[1]]
        char = self._source.take()
        if char != "\\":
            return class_char(char) if char != "-" else "-"
        letter = self._peek()
        if letter in ("d", "D", "w", "W", "s", "S"):
            self._source.take()
            ascii_form = _ASCII[f"\\{letter}"]
            return f"\\{letter}" if "a" not in self._flags or "^" in ascii_form else ascii_form[1:-1]
        if letter in ("p", "P"):
            return self._property(at)
        if letter == "b":
            self._source.take()
            return "\\x08"
        return class_char(self._escaped_char(at))


def class_char(char: str) -> str:
    """Return how a character is written in a class of a regex."""
    if char in "\\]^-[&~\"'/":
        return f"\\x{ord(char):02x}" if char in "\"'" else f"\\{char}"
    return char if char.isprintable() else escaped(char)


def escaped(char: str) -> str:
    """Return a character that cannot be printed as an escape that every regex knows."""
    known = {"\n": "\\n", "\t": "\\t", "\r": "\\r"}
    code = ord(char)
    return known.get(char) or (
        f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}" if code < 1 << 16 else f"\\U{code:08x}"
    )


def _boundary(negative: bool) -> Node:
    """Return \\b or \\B. Outside of the regex there is no word character, as far as the boundary can see."""
    word = Chars("\\w")
    before, after = Look(word, False, False), Look(word, True, False)
    no_before, no_after = Look(word, False, True), Look(word, True, True)
    if negative:
        return alternatives(sequence(before, after), sequence(no_before, no_after))
    return alternatives(sequence(before, no_after), sequence(no_before, after))


def read_regex(pattern: str, flags: str = "") -> Node:
    """Return the tree of a regex that stands alone.

    >>> read_regex("a+")
    Repeat(item=ExactText(value='a', caseless=False, place=Place(line=1, column=1)), low=1, high=None, lazy=False)
    """
    source = Cursor(pattern)
    return RegexReader(source, len(pattern), flags).read() if pattern else EMPTY
