"""An oracle for regular expressions by another method: an automaton over code points, simulated by sets of states.

The guest works on bytes and derivatives; the oracle works on code points and knows bytes only as prefixes of
encodings, so the two share no mistakes. Counts are unrolled: keep counts small.
"""

import string
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache

MAX_CODE_POINT = 0x10FFFF


@dataclass(frozen=True, slots=True)
class Chars:
    """One code point of the ranges, or outside of the ranges if `negated`. `text` is the spelling in a pattern."""

    text: str
    ranges: tuple[tuple[int, int], ...]
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Sequence_:
    parts: tuple["Node", ...]


@dataclass(frozen=True, slots=True)
class Choice:
    ways: tuple["Node", ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    body: "Node"
    min: int
    max: int | None
    text: str


Node = Chars | Sequence_ | Choice | Repeat


def render(node: Node) -> str:
    match node:
        case Chars():
            return node.text
        case Sequence_():
            return "".join(f"({render(p)})" if isinstance(p, Choice) else render(p) for p in node.parts)
        case Choice():
            return "|".join(render(way) for way in node.ways)
        case Repeat():
            return f"(?:{render(node.body)}){node.text}"


@dataclass
class Automaton:
    """Thompson's construction. Every state leads to the end, since no class is empty."""

    ignore_case: bool = False
    jumps: list[list[int]] = field(default_factory=list)
    edges: list[list[tuple[Chars, int]]] = field(default_factory=list)
    start: int = 0
    end: int = 0

    @classmethod
    def of(cls, node: Node, *, ignore_case: bool = False) -> "Automaton":
        automaton = cls(ignore_case)
        automaton.start, automaton.end = automaton._new(), automaton._new()
        automaton._add(node, automaton.start, automaton.end)
        return automaton

    def _new(self) -> int:
        self.jumps.append([])
        self.edges.append([])
        return len(self.jumps) - 1

    def _add(self, node: Node, source: int, target: int) -> None:
        match node:
            case Chars():
                self.edges[source].append((node, target))
            case Sequence_():
                for part in node.parts:
                    after = self._new()
                    self._add(part, source, after)
                    source = after
                self.jumps[source].append(target)
            case Choice():
                for way in node.ways:
                    self._add(way, source, target)
            case Repeat():
                for _ in range(node.min):
                    after = self._new()
                    self._add(node.body, source, after)
                    source = after
                if node.max is None:
                    loop = self._new()
                    self.jumps[source].append(loop)
                    self._add(node.body, loop, loop)
                    self.jumps[loop].append(target)
                else:
                    for _ in range(node.max - node.min):
                        after = self._new()
                        self._add(node.body, source, after)
                        self.jumps[source].append(target)
                        source = after
                    self.jumps[source].append(target)

    def closure(self, states: Sequence[int] | set[int]) -> frozenset[int]:
        reached, open_ = set(states), list(states)
        while open_:
            for state in self.jumps[open_.pop()]:
                if state not in reached:
                    reached.add(state)
                    open_.append(state)
        return frozenset(reached)

    def initial(self) -> frozenset[int]:
        return self.closure([self.start])

    def step(self, states: frozenset[int], first: int, last: int) -> frozenset[int]:
        """Return the states after some code point of first..last."""
        targets = {t for s in states for chars, t in self.edges[s] if self._meets(chars, first, last)}
        return self.closure(targets)

    def _meets(self, chars: Chars, first: int, last: int) -> bool:
        return any(low <= last and high >= first for low, high in _intervals(chars, self.ignore_case))


@cache
def _intervals(chars: Chars, ignore_case: bool) -> list[tuple[int, int]]:
    """Return the code points that `chars` matches, without surrogates."""
    inside = list(chars.ranges)
    if ignore_case:
        letters = [ord(c) for c in string.ascii_letters]
        inside += [(c ^ 32, c ^ 32) for c in letters if any(low <= c <= high for low, high in chars.ranges)]
    matched = _complement(inside) if chars.negated else inside
    return _complement([*_complement(matched), (0xD800, 0xDFFF)])


def _complement(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    gaps, start = [], 0
    for low, high in sorted(ranges):
        if low > start:
            gaps.append((start, low - 1))
        start = max(start, high + 1)
    return [*gaps, (start, MAX_CODE_POINT)] if start <= MAX_CODE_POINT else gaps


@dataclass(frozen=True, slots=True)
class Position:
    """A position in a text: the states after the whole code points, and the bytes of a code point that has begun."""

    states: frozenset[int]
    partial: bytes = b""

    def push(self, automaton: Automaton, text: bytes) -> "Position | None":
        """Return None if no matching text begins with the bytes so far."""
        position = self
        for byte in text:
            pushed = position._push_byte(automaton, byte)
            if pushed is None:
                return None
            position = pushed
        return position

    def _push_byte(self, automaton: Automaton, byte: int) -> "Position | None":
        partial = self.partial + bytes([byte])
        span = encodings(partial)
        if span is None:
            return None
        first, last, whole = span
        states = automaton.step(self.states, first, last)
        if not states:
            return None
        return Position(states) if whole else Position(self.states, partial)

    def accepts(self, automaton: Automaton) -> bool:
        return not self.partial and automaton.end in self.states

    def is_final(self, automaton: Automaton) -> bool:
        return self.accepts(automaton) and not any(automaton.edges[state] for state in self.states)


def encodings(prefix: bytes) -> tuple[int, int, bool] | None:
    """Return the first and the last code point whose encoding begins with `prefix`, and whether `prefix` is a whole
    encoding."""
    lead = prefix[0]
    length = (
        1
        if lead < 0x80
        else 2
        if 0xC0 <= lead < 0xE0
        else 3
        if 0xE0 <= lead < 0xF0
        else 4
        if 0xF0 <= lead < 0xF8
        else 0
    )
    if length == 0 or any(not 0x80 <= byte < 0xC0 for byte in prefix[1:]):
        return None
    missing = length - len(prefix)
    value = lead if length == 1 else lead & (0x7F >> length)
    for byte in prefix[1:]:
        value = value << 6 | byte & 0x3F
    least = (0, 0x80, 0x800, 0x10000)[length - 1]
    first, last = max(value << 6 * missing, least), min((value + 1 << 6 * missing) - 1, MAX_CODE_POINT)
    if first > last or (first >= 0xD800 and last <= 0xDFFF):
        return None
    return first, last, missing == 0


DIGIT = ((48, 57),)
SPACE = ((9, 13), (32, 32))
WORD = ((48, 57), (65, 90), (95, 95), (97, 122))


def literal(character: str) -> Chars:
    escaped = "\\" + character if character in string.punctuation else character
    return Chars(escaped, ((ord(character), ord(character)),))
