"""Print a regular node as a regular expression of the guest `grammar`."""

from typing import Final

from aici_controllers.notations.regex_reader import escaped
from aici_controllers.notations.tree import (
    Alt,
    Both,
    Chars,
    ExactText,
    Guarded,
    Json,
    Lexeme,
    Look,
    Node,
    Not,
    Parametric,
    Pattern,
    Ref,
    Repeat,
    Seq,
    Shortest,
)

_SPECIAL: Final = frozenset("\\^$.|?*+()[]{}&~/#")
_QUOTES: Final = frozenset("\"'")
# How tightly a printed node binds.
_CHOICE, _SEQUENCE, _ATOM = range(3)


def regex_source(node: Node) -> str:
    """Return the regex. `\\d`, `\\w` and `\\s` are Unicode's, as in Lark.

    >>> regex_source(Repeat(ExactText("a."), 1, None))
    '(?:a\\\\.)+'
    """
    source = _printed(node, _CHOICE)
    return f"(?u){source}" if any(letter in source for letter in ("\\w", "\\W", "\\d", "\\D", "\\s", "\\S")) else source


def _printed(node: Node, level: int) -> str:
    source, own = _source(node)
    return source if own >= level else f"(?:{source})"


def _source(node: Node) -> tuple[str, int]:
    match node:
        case ExactText(value, caseless):
            source = "".join(map(text_char, value))
            if caseless and value.lower() != value.upper():
                return f"(?i:{source})", _ATOM
            return source, _ATOM if len(value) == 1 else _SEQUENCE
        case Chars(source, caseless):
            return (f"(?i:{source})" if caseless else source), _ATOM
        case Seq(items):
            return "".join(_printed(item, _SEQUENCE) for item in items), _ATOM if not items else _SEQUENCE
        case Alt(()):
            return "[^\\x00-\\U0010ffff]", _ATOM
        case Alt(options):
            return "|".join(_printed(option, _SEQUENCE) for option in options), _CHOICE
        case Repeat(item, low, high):
            return _printed(item, _ATOM) + counts(low, high), _SEQUENCE
        case Both(items):
            return f"(?&{'&'.join(_printed(item, _CHOICE) for item in items)})", _ATOM
        case Not(item):
            return f"(?~{_printed(item, _CHOICE)})", _ATOM
        case Shortest(item):
            source = _printed(item, _CHOICE)
            return f"(?&{source}&(?~{_printed(item, _SEQUENCE)}(?s:.)+))", _ATOM
        case Lexeme(item):
            return _source(item)
        case Ref() | Look() | Json() | Pattern() | Parametric() | Guarded():
            raise AssertionError(f"no regex: {node}")


def counts(low: int, high: int | None) -> str:
    """Return a repetition as a suffix, such as `*` or `{2,5}`."""
    known = {(0, None): "*", (1, None): "+", (0, 1): "?", (1, 1): ""}
    if (low, high) in known:
        return known[low, high]
    return f"{{{low}}}" if low == high else f"{{{low},{'' if high is None else high}}}"


def text_char(char: str) -> str:
    """Return a character of a text in a regex. Quotes are escaped: a regex of the guest stands in quotes."""
    if char in _QUOTES:
        return f"\\x{ord(char):02x}"
    if char in _SPECIAL:
        return f"\\{char}"
    return char if char.isprintable() else escaped(char)
