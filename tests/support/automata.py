"""Regular languages over a small alphabet as complete deterministic automata: an oracle for regular expressions.

Automata are combined and minimized. No derivatives are taken, so the oracle shares no mistakes with the guest.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

Key = object


@dataclass(frozen=True, slots=True)
class Automaton:
    """State 0 is the start; `moves[state][symbol]` is where a symbol leads. Equal languages are equal values."""

    moves: tuple[tuple[int, ...], ...]
    accepting: frozenset[int]

    @classmethod
    def explore(cls, size: int, start: Key, step: Callable[[Key, int], Key], accepts: Callable[[Key], bool]) -> Self:
        """The automaton of the states reached from `start`, minimized."""
        numbers: dict[Key, int] = {start: 0}
        order = [start]
        moves = []
        for state in order:
            row = []
            for symbol in range(size):
                target = step(state, symbol)
                if target not in numbers:
                    numbers[target] = len(order)
                    order.append(target)
                row.append(numbers[target])
            moves.append(row)
        return cls._minimal(moves, [accepts(state) for state in order])

    @classmethod
    def _minimal(cls, moves: list[list[int]], accepting: list[bool]) -> Self:
        block = [int(flag) for flag in accepting]
        while True:
            signatures: dict[tuple[int, ...], int] = {}
            refined = [
                signatures.setdefault((block[s], *(block[t] for t in moves[s])), len(signatures))
                for s in range(len(moves))
            ]
            if len(signatures) == len(set(block)):
                break
            block = refined
        # States are numbered in the order of a walk from the start: equal languages get equal numbers.
        numbers, order = {block[0]: 0}, [0]
        rows = []
        for state in order:
            row = []
            for target in moves[state]:
                if block[target] not in numbers:
                    numbers[block[target]] = len(order)
                    order.append(target)
                row.append(numbers[block[target]])
            rows.append(tuple(row))
        return cls(tuple(rows), frozenset(n for n, state in enumerate(order) if accepting[state]))

    @classmethod
    def symbols(cls, size: int, members: frozenset[int]) -> Self:
        return cls.explore(size, 0, lambda s, c: 1 if s == 0 and c in members else 2, lambda s: s == 1)

    @classmethod
    def empty_text(cls, size: int) -> Self:
        return cls.explore(size, 0, lambda s, c: 1, lambda s: s == 0)

    @property
    def size(self) -> int:
        return len(self.moves[0])

    def complement(self) -> "Automaton":
        return self._combine([self], lambda flags: not flags[0])

    def _combine(self, parts: list["Automaton"], accepts: Callable[[list[bool]], bool]) -> "Automaton":
        def step(state: Key, symbol: int) -> Key:
            assert isinstance(state, tuple)
            return tuple(part.moves[s][symbol] for part, s in zip(parts, state, strict=True))

        def accepting(state: Key) -> bool:
            assert isinstance(state, tuple)
            return accepts([s in part.accepting for part, s in zip(parts, state, strict=True)])

        return Automaton.explore(self.size, (0,) * len(parts), step, accepting)

    def __and__(self, other: "Automaton") -> "Automaton":
        return self._combine([self, other], all)

    def __or__(self, other: "Automaton") -> "Automaton":
        return self._combine([self, other], any)

    def __add__(self, other: "Automaton") -> "Automaton":
        """Concatenation. A state is a state of `self` and the set of states of `other` that the splits so far have
        reached."""

        def entered(state: int, others: frozenset[int]) -> tuple[int, frozenset[int]]:
            return state, others | {0} if state in self.accepting else others

        def step(state: Key, symbol: int) -> Key:
            assert isinstance(state, tuple)
            return entered(self.moves[state[0]][symbol], frozenset(other.moves[s][symbol] for s in state[1]))

        def accepts(state: Key) -> bool:
            assert isinstance(state, tuple)
            return bool(state[1] & other.accepting)

        return Automaton.explore(self.size, entered(0, frozenset()), step, accepts)

    def star(self) -> "Automaton":
        def step(state: Key, symbol: int) -> Key:
            assert isinstance(state, frozenset)
            after = frozenset(self.moves[s][symbol] for s in state if s >= 0)
            return after | {0} if after & self.accepting else after

        def accepts(state: Key) -> bool:
            assert isinstance(state, frozenset)
            return -1 in state or bool(state & self.accepting)

        return Automaton.explore(self.size, frozenset({-1, 0}), step, accepts)

    def repeat(self, least: int, most: int | None) -> "Automaton":
        nothing_more = Automaton.empty_text(self.size)
        tail = self.star() if most is None else nothing_more
        for _ in range(0 if most is None else most - least):
            tail = nothing_more | (self + tail)
        for _ in range(least):
            tail = self + tail
        return tail

    def living(self) -> frozenset[int]:
        """Return the states from which acceptance is still reachable."""
        alive = set(self.accepting)
        while True:
            more = {s for s, row in enumerate(self.moves) if s not in alive and alive.intersection(row)}
            if not more:
                return frozenset(alive)
            alive |= more

    def verdict(self, text: tuple[int, ...]) -> str:
        """Return "2" if `text` matches, "1" if `text` is only the beginning of a match, else "0"."""
        state = 0
        for symbol in text:
            state = self.moves[state][symbol]
        return "2" if state in self.accepting else "1" if state in self.living() else "0"
