"""llguidance's parametric rules: `rule::_` has a number of 64 bits as a parameter, `other::set_bit(0)` hands a number
on, and `%if bit_clear(0)` keeps an alternative for some numbers. Rules are written out for the numbers that occur.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

from aici_controllers.notations.source import Cursor
from aici_controllers.notations.tree import (
    Alt,
    Guarded,
    Node,
    NotationError,
    Parametric,
    Place,
    Ref,
    Repeat,
    Rule,
    alternatives,
    mapped,
    parts,
)

_BITS: Final = 64
_WORD: Final = re.compile(r"[a-z_]+")
_NUMBER: Final = re.compile(r"0[xX][0-9a-fA-F]+|\d+")
_RANGE: Final = re.compile(r"\[\s*(\d+)\s*:\s*(\d+)\s*\]|_(?!\w)")


@dataclass(frozen=True, slots=True)
class Bits:
    """The bits from `first` up to `end` of the parameter, `end` excluded."""

    first: int
    end: int

    def of(self, value: int) -> int:
        return value >> self.first & self.ones

    @property
    def ones(self) -> int:
        return (1 << self.end - self.first) - 1


Argument: TypeAlias = "Bits | int | ParameterCall"


@dataclass(frozen=True, slots=True)
class ParameterCall:
    """A function of the parameter, with its arguments."""

    name: str
    args: tuple[Argument, ...]
    place: Place


def _stepped(up: bool) -> Callable[[int, Bits], int]:
    def step(value: int, bits: Bits) -> int:
        if bits.of(value) == (bits.ones if up else 0):
            return value
        return value + (1 << bits.first) * (1 if up else -1)

    return step


_COMPARE: Final[dict[str, Callable[[int, int], bool]]] = {
    "eq": lambda x, y: x == y,
    "ne": lambda x, y: x != y,
    "lt": lambda x, y: x < y,
    "le": lambda x, y: x <= y,
    "gt": lambda x, y: x > y,
    "ge": lambda x, y: x >= y,
}
# Functions of the parameter by name: the kinds of their arguments, and their meaning.
_Meaning: TypeAlias = "tuple[tuple[type, ...], Callable[..., int]]"
_VALUES: Final[dict[str, _Meaning]] = {
    "_": ((), lambda p: p),
    "set_bit": ((int,), lambda p, k: p | 1 << k),
    "clear_bit": ((int,), lambda p, k: p & ~(1 << k)),
    "bit_and": ((int,), lambda p, v: p & v),
    "bit_or": ((int,), lambda p, v: p | v),
    "incr": ((Bits,), _stepped(True)),
    "decr": ((Bits,), _stepped(False)),
}
_CONDITIONS: Final[dict[str, _Meaning]] = {
    "true": ((), lambda _: True),
    "bit_clear": ((int,), lambda p, k: not p >> k & 1),
    "bit_set": ((int,), lambda p, k: p >> k & 1),
    "is_ones": ((Bits,), lambda p, bits: bits.of(p) == bits.ones),
    "is_zeros": ((Bits,), lambda p, bits: bits.of(p) == 0),
    **{name: ((Bits, int), lambda p, bits, v, f=f: f(bits.of(p), v)) for name, f in _COMPARE.items()},
    **{
        f"bit_count_{name}": ((Bits, int), lambda p, bits, v, f=f: f(bits.of(p).bit_count(), v))
        for name, f in _COMPARE.items()
    },
    "and": ((ParameterCall, ParameterCall), lambda _, x, y: x and y),
    "or": ((ParameterCall, ParameterCall), lambda _, x, y: x or y),
    "not": ((ParameterCall,), lambda _, x: not x),
}


def read_value(source: Cursor) -> ParameterCall | int:
    """Read what stands behind `::`: a number, or a function of the rule's own parameter."""
    if number := _NUMBER.match(source.text, source.offset):
        return _number(source, number)
    return _read_call(source, _VALUES)


def read_condition(source: Cursor) -> ParameterCall:
    """Read what stands behind `%if`."""
    return _read_call(source, _CONDITIONS)


def _number(source: Cursor, found: re.Match[str]) -> int:
    value = int(found[0], 16 if found[0][:2].lower() == "0x" else 10)
    if value >> _BITS:
        raise source.error(f"a parameter has {_BITS} bits")
    source.offset = found.end()
    return value


def _read_call(source: Cursor, known: dict[str, _Meaning]) -> ParameterCall:
    _skip(source)
    place, at = source.place(), source.offset
    word = _WORD.match(source.text, at)
    name = word[0] if word else ""
    if name not in known:
        raise source.error(f"expected one of {', '.join(known)}")
    source.offset += len(name)
    kinds, args = known[name][0], []
    if kinds and not source.accept("("):
        raise source.error(f"expected ( and the arguments of {name}")
    for number, kind in enumerate(kinds):
        _skip(source)
        if number and not source.accept(","):
            raise source.error(f"expected , and a further argument of {name}")
        _skip(source)
        args.append(_read_argument(source, kind))
        _skip(source)
    if (kinds or source.accept("(")) and not source.accept(")"):
        raise source.error(f"expected ) behind the arguments of {name}")
    if name in ("set_bit", "clear_bit", "bit_clear", "bit_set") and args[0] >= _BITS:  # type: ignore[operator]
        raise source.error(f"a parameter has {_BITS} bits", at)
    return ParameterCall(name, tuple(args), place)


def _read_argument(source: Cursor, kind: type) -> Argument:
    if kind is ParameterCall:
        return _read_call(source, _CONDITIONS)
    if kind is int:
        if not (number := _NUMBER.match(source.text, source.offset)):
            raise source.error("expected a number")
        return _number(source, number)
    if not (found := _RANGE.match(source.text, source.offset)):
        raise source.error("expected bits such as [0:3], or _ for all")
    bits = Bits(int(found[1]), int(found[2])) if found[1] else Bits(0, _BITS)
    if not bits.first < bits.end <= _BITS:
        raise source.error(f"bits go from a smaller number to a greater one, up to {_BITS}")
    source.offset = found.end()
    return bits


def _skip(source: Cursor) -> None:
    while source.peek() in (" ", "\t"):
        source.take()


def bound(node: Node, value: int | None) -> Node:
    """Return a body for a parameter: numbers in place of functions, and only the alternatives whose condition holds.
    `value` None: of a rule without a parameter."""
    match node:
        case Parametric(name, given, place):
            if isinstance(given, ParameterCall):
                given = _result(given, value, _VALUES)
            return Parametric(name, given, place)
        case Guarded(item, condition):
            assert isinstance(condition, ParameterCall)
            return bound(item, value) if _result(condition, value, _CONDITIONS) else Alt(())
        case _:
            return mapped(node, lambda part: bound(part, value))


def _result(call: ParameterCall, value: int | None, known: dict[str, _Meaning]) -> int:
    if value is None:
        raise NotationError(call.place, f"{call.name} speaks of a parameter, and this rule has none: name it rule::_")
    args = [_result(arg, value, known) if isinstance(arg, ParameterCall) else arg for arg in call.args]
    return int(known[call.name][1](value, *args))


def only_ending(rules: dict[str, Rule], start: str) -> dict[str, Rule]:
    """Return the rules without alternatives that can never end: for some numbers no alternative was kept."""
    ending: set[str] = set()
    while more := {name for name, rule in rules.items() if name not in ending and _ends(rule.body, ending, rules)}:
        ending |= more
    if start not in ending:
        raise NotationError(rules[start].place, "no text: for some parameter the condition of every alternative fails")
    kept = {name: Rule(name, _kept(rules[name].body, ending, rules), rules[name].place) for name in ending}
    return {name: kept[name] for name in rules if name in ending}


def _ends(node: Node, ending: set[str], rules: dict[str, Rule]) -> bool:
    match node:
        case Ref(name):
            return name not in rules or name in ending
        case Alt(options):
            return any(_ends(option, ending, rules) for option in options)
        case Repeat(item, low):
            return low == 0 or _ends(item, ending, rules)
        case _:
            return all(_ends(part, ending, rules) for part in parts(node))


def _kept(node: Node, ending: set[str], rules: dict[str, Rule]) -> Node:
    match node:
        case Alt(options):
            return alternatives(*(_kept(one, ending, rules) for one in options if _ends(one, ending, rules)))
        case Repeat(item, low) if low == 0 and not _ends(item, ending, rules):
            return Repeat(Alt(()), 0, 0)
        case _:
            return mapped(node, lambda part: _kept(part, ending, rules))
