"""Grammars over single letters, canonical LR(1) tables of the grammars, and a recognizer without tables: for
comparison.

Symbols are strings: a lower-case letter is a terminal, other strings are rules; "$" is the end of the input.
"""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

END = "$"
START = "$start"


@dataclass(frozen=True)
class Rule:
    head: str
    body: tuple[str, ...]
    prec: str | None = None


@dataclass(frozen=True)
class Precedences:
    """Lines of ("left" | "right" | "nonassoc", terminals), loosest first."""

    lines: tuple[tuple[str, str], ...] = ()

    def of(self, terminal: str | None) -> tuple[int, str] | None:
        for level, (assoc, terminals) in enumerate(self.lines, 1):
            if terminal is not None and terminal in terminals:
                return level, assoc
        return None


@dataclass(frozen=True)
class SmallGrammar:
    rules: tuple[Rule, ...]  # the head of the first rule is the start
    precedences: Precedences = field(default_factory=Precedences)

    @cached_property
    def numbered(self) -> tuple[Rule, ...]:
        return (Rule(START, (self.rules[0].head,)), *self.rules)

    @cached_property
    def heads(self) -> set[str]:
        return {rule.head for rule in self.rules}

    @cached_property
    def terminals(self) -> list[str]:
        return sorted({symbol for rule in self.rules for symbol in rule.body} - self.heads)

    @cached_property
    def nullable(self) -> set[str]:
        return set(_fixpoint(self._empty_heads))

    def _empty_heads(self, known: set[str]) -> set[str]:
        return {rule.head for rule in self.rules if set(rule.body) <= known}

    def first(self, symbols: tuple[str, ...], after: frozenset[str]) -> frozenset[str]:
        out: set[str] = set()
        for symbol in symbols:
            out |= self.firsts.get(symbol, {symbol})
            if symbol not in self.nullable:
                return frozenset(out)
        return frozenset(out) | after

    @cached_property
    def firsts(self) -> dict[str, set[str]]:
        firsts: dict[str, set[str]] = {head: set() for head in self.heads}
        changed = True
        while changed:
            changed = False
            for rule in self.rules:
                for symbol in rule.body:
                    new = firsts.get(symbol, {symbol}) - firsts[rule.head]
                    changed = changed or bool(new)
                    firsts[rule.head] |= new
                    if symbol not in self.nullable:
                        break
        return firsts

    def productive(self) -> set[str]:
        ending: set[str] = set()
        while new := {r.head for r in self.rules if all(s not in self.heads or s in ending for s in r.body)} - ending:
            ending |= new
        return ending

    def text(self) -> str:
        """Return the grammar as a .y file."""
        lines = [f"%{assoc} {' '.join(map(_quote, terminals))}" for assoc, terminals in self.precedences.lines]
        alternatives: dict[str, list[str]] = {}
        for rule in self.rules:
            body = " ".join(symbol if symbol in self.heads else _quote(symbol) for symbol in rule.body) or "%empty"
            alternatives.setdefault(rule.head, []).append(body + (f" %prec {_quote(rule.prec)}" if rule.prec else ""))
        return "\n".join([*lines, "%%", *(f"{head} : {' | '.join(ways)} ;" for head, ways in alternatives.items())])

    def lark_text(self) -> str:
        """Return the grammar for lark: rules in lower case."""
        ways: dict[str, list[str]] = {}
        for rule in self.rules:
            body = " ".join(s.lower() if s in self.heads else _quote(s) for s in rule.body)
            ways.setdefault(rule.head.lower(), []).append(body)
        return "\n".join(f"{head}: {' | '.join(bodies)}" for head, bodies in ways.items()) + "\n"


def _quote(terminal: str) -> str:
    return f'"{terminal}"'


def _fixpoint(step: Any) -> set[str]:
    known: set[str] = set()
    while (new := step(known)) != known:
        known = new
    return known


Item = tuple[int, int, str]  # production, dot, a terminal that may follow
Verdict = tuple[str, int] | None  # ("shift", state), ("reduce", production), ("accept", 0); None is an error


class CanonicalTable:
    """Knuth's construction, with a state for every set of items; conflicts are settled as in Bison."""

    def __init__(self, grammar: SmallGrammar, max_states: int = 400) -> None:
        self.grammar = grammar
        self.states: list[frozenset[Item]] = []
        self.edges: list[dict[str, int]] = []
        self.complete = True  # within max_states
        self.conflicts: set[tuple[int, str]] = set()
        numbers: dict[frozenset[Item], int] = {}

        def number(kernel: frozenset[Item]) -> int:
            if kernel not in numbers:
                numbers[kernel] = len(self.states)
                self.states.append(self._closure(kernel))
                self.edges.append({})
            return numbers[kernel]

        number(frozenset({(0, 0, END)}))
        for state, items in enumerate(self.states):
            if len(self.states) > max_states:
                self.complete = False
                return
            moved: dict[str, set[Item]] = {}
            for rule, dot, after in items:
                body = grammar.numbered[rule].body
                if dot < len(body):
                    moved.setdefault(body[dot], set()).add((rule, dot + 1, after))
            self.edges[state] = {symbol: number(frozenset(kernel)) for symbol, kernel in sorted(moved.items())}
        self.actions = [
            {terminal: self._action(state, terminal) for terminal in [*grammar.terminals, END]}
            for state in range(len(self.states))
        ]

    def _closure(self, kernel: frozenset[Item]) -> frozenset[Item]:
        grammar, items, todo = self.grammar, set(kernel), list(kernel)
        while todo:
            rule, dot, after = todo.pop()
            body = grammar.numbered[rule].body
            if dot == len(body) or body[dot] not in grammar.heads:
                continue
            for terminal in grammar.first(body[dot + 1 :], frozenset({after})):
                for number, other in enumerate(grammar.numbered):
                    item = (number, 0, terminal)
                    if other.head == body[dot] and item not in items:
                        items.add(item)
                        todo.append(item)
        return frozenset(items)

    def _action(self, state: int, terminal: str) -> Verdict:
        grammar = self.grammar
        target = self.edges[state].get(terminal)
        refused = False
        kept: list[int] = []
        for number, dot, after in sorted(self.states[state]):
            rule = grammar.numbered[number]
            if dot < len(rule.body) or after != terminal:
                continue
            last = next((symbol for symbol in reversed(rule.body) if symbol not in grammar.heads), None)
            of_rule = grammar.precedences.of(rule.prec or last)
            of_terminal = grammar.precedences.of(terminal)
            if target is not None and of_rule and of_terminal:
                if of_rule[0] < of_terminal[0] or (of_rule[0] == of_terminal[0] and of_rule[1] == "right"):
                    continue
                target = None
                if of_rule[0] == of_terminal[0] and of_rule[1] == "nonassoc":
                    refused = True
                    continue
            kept.append(number)
        if refused:
            return None
        if len(kept) + (target is not None) > 1:
            self.conflicts.add((state, terminal))
        if target is not None:
            return "shift", target
        if kept:
            return ("accept", 0) if kept[0] == 0 else ("reduce", kept[0])
        return None

    def accepts(self, text: str) -> bool:
        stack = [0]
        for terminal in [*text, END]:
            while True:
                action = self.actions[stack[-1]].get(terminal)
                if action is None:
                    return False
                kind, target = action
                if kind == "accept":
                    return True
                if kind == "shift":
                    stack.append(target)
                    break
                rule = self.grammar.numbered[target]
                del stack[len(stack) - len(rule.body) :]
                stack.append(self.edges[stack[-1]][rule.head])
        raise AssertionError("the end is accepted or refused")


def derives(grammar: SmallGrammar, text: str) -> bool:
    """Return whether `text` is a sentence; precedence plays no part."""
    sets = _earley(grammar, text)
    return len(sets) > len(text) and (0, 1, 0) in sets[-1]


def viable(grammar: SmallGrammar, text: str) -> tuple[int, set[str]]:
    """Return the length of the longest beginning of `text` that begins a sentence, and what may follow that beginning:
    terminals, and END. Every rule must be able to end."""
    sets = _earley(grammar, text)
    bodies = [(grammar.numbered[number].body, dot) for number, dot, _ in sets[-1]]
    follow = {body[dot] for body, dot in bodies if dot < len(body)} - grammar.heads
    return len(sets) - 1, follow | ({END} if (0, 1, 0) in sets[-1] else set())


def _earley(grammar: SmallGrammar, text: str) -> list[set[tuple[int, int, int]]]:
    """Return Earley's sets up to the first empty set, with Aycock and Horspool's treatment of empty rules."""
    sets: list[set[tuple[int, int, int]]] = [set() for _ in range(len(text) + 1)]
    sets[0].add((0, 0, 0))
    for position in range(len(text) + 1):
        todo = list(sets[position])
        if not todo:
            return sets[:position]

        def push(where: int, item: tuple[int, int, int], todo: list[Any] = todo, now: int = position) -> None:
            if item not in sets[where]:
                sets[where].add(item)
                if where == now:
                    todo.append(item)

        while todo:
            number, dot, origin = todo.pop()
            body = grammar.numbered[number].body
            if dot == len(body):
                head = grammar.numbered[number].head
                for other, at, start in list(sets[origin]):
                    other_body = grammar.numbered[other].body
                    if at < len(other_body) and other_body[at] == head:
                        push(position, (other, at + 1, start))
            elif body[dot] in grammar.heads:
                for other, rule in enumerate(grammar.numbered):
                    if rule.head == body[dot]:
                        push(position, (other, 0, position))
                if body[dot] in grammar.nullable:
                    push(position, (number, dot + 1, origin))
            elif position < len(text) and text[position] == body[dot]:
                push(position + 1, (number, dot + 1, origin))
    return sets


class BuiltTable:
    """The table that a guest built, run on terminals."""

    KINDS = ("error", "shift", "reduce", "accept")

    def __init__(self, answer: dict[str, Any]) -> None:
        self.terminals = {terminal["text"]: number for number, terminal in enumerate(answer["terminals"]) if number}
        self.num_terminals = len(answer["terminals"])
        self.num_nonterminals: int = answer["num_nonterminals"]
        self.num_states: int = answer["num_states"]
        self.settled: int = answer["settled"]
        self.shifted: int = answer["shifted"]
        self.general: bool = answer["general"]
        self.productions: list[list[int]] = answer["productions"]
        self._actions: list[int] = answer["actions"]
        self._gotos: list[int] = answer["gotos"]

    def accepts(self, text: str) -> bool:
        return self.tree(text) is not None

    def tree(self, text: str) -> str | None:
        """Return `text` with every production of more than one symbol in square brackets; None if the table refuses
        `text`."""
        stack = [0]
        trees: list[str] = []
        for letter, terminal in [*((letter, self.terminals.get(letter)) for letter in text), ("", 0)]:
            if terminal is None:
                return None
            while True:
                kind, target = divmod(self._actions[stack[-1] * self.num_terminals + terminal], 1 << 16)
                if self.KINDS[kind] == "error":
                    return None
                if self.KINDS[kind] == "accept":
                    return trees[0] if terminal == 0 else None
                if self.KINDS[kind] == "shift":
                    stack.append(target)
                    trees.append(letter)
                    break
                head, *body = self.productions[target]
                cut = len(stack) - len(body)
                tree = "".join(trees[cut - 1 :])
                del stack[cut:], trees[cut - 1 :]
                trees.append(f"[{tree}]" if len(body) > 1 else tree)
                stack.append(self._gotos[stack[-1] * self.num_nonterminals + head - self.num_terminals])
        raise AssertionError("the end is accepted or refused")
