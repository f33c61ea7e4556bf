"""An oracle for grammars by other methods than the guest's: the `regex` module matches lexemes, Earley's algorithm
derives sentences, and trying texts decides whether an input can be completed.
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property

import regex


@dataclass(frozen=True, slots=True)
class Terminal:
    text: str
    is_regex: bool = False

    def quoted(self) -> str:
        return f'"/{self.text}/"' if self.is_regex else f'"{self.text}"'

    @property
    def rank(self) -> tuple[bool, int]:
        """A smaller rank wins; between equal ranks the terminal that was written first wins."""
        return self.is_regex, -len(self.text)


Symbol = Terminal | str
"""A string is the name of a rule."""


Lexemes = tuple[Terminal, ...]


@dataclass(frozen=True, slots=True)
class Position:
    """`pending`: the lexeme under way, None before the first byte. `readings`: the lexemes that the parser has read;
    several readings only if the grammar is ambiguous."""

    pending: str | None
    at_start: bool
    readings: frozenset[Lexemes]


@dataclass(frozen=True)
class OracleGrammar:
    rules: tuple[tuple[str, tuple[tuple[Symbol, ...], ...]], ...]  # the first rule is the start
    skip: tuple[Terminal, ...] = ()
    contextual: bool = False
    ambiguous: bool = False  # needs contextual

    def text(self) -> str:
        option = "%option ambiguous" if self.ambiguous else "%option contextual" if self.contextual else ""
        lines = [option, "%glr-parser", "%%"]
        for head, ways in self.rules:
            lines.append(f"{head} : {' | '.join(_body(way) for way in ways)} ;")
        if self.skip:
            lines.append(f"SKIP : {' | '.join(terminal.quoted() for terminal in self.skip)} ;")
        return "\n".join(lines)

    @cached_property
    def terminals(self) -> list[Terminal]:
        """Return the terminals in the order in which the reader meets them."""
        symbols = [symbol for _, ways in self.rules for way in ways for symbol in way]
        return list(dict.fromkeys([*(s for s in symbols if isinstance(s, Terminal)), *self.skip]))

    @cached_property
    def alphabet(self) -> str:
        letters = {
            c for terminal in self.terminals for c in terminal.text.replace("\\n", "") if c.isalnum() or c in " ,()#"
        }
        return "".join(sorted(letters | ({"\n"} if any("\\n" in t.text for t in self.terminals) else set())))

    @cached_property
    def runs_together(self) -> bool:
        """Whether a terminal can follow itself, two of its lexemes are also one lexeme (`(ab)+`), and nothing may stand
        between the two. A rule may then have no end that can be written; the check of grammars does not find such a
        rule."""
        if any(_match(terminal, " ", partial=False) for terminal in self.skip):
            return False
        twice = [t for t in self.terminals if t.is_regex and t in self._next_to[t]]
        return any(_match(t, word + word, partial=False) for t in twice for word in self.words.get(t, ()))

    @cached_property
    def _next_to(self) -> dict[Terminal, set[Terminal]]:
        """Return the terminals that can follow a terminal in a sentence, whether or not the sentence can be ended."""
        firsts, lasts = self._edges(1), self._edges(-1)
        following: dict[Terminal, set[Terminal]] = {terminal: set() for terminal in self.terminals}
        for _, way in self._productions:
            for (i, before), (j, after) in itertools.combinations(enumerate(way), 2):
                if self._nullable.issuperset(way[i + 1 : j]):
                    for terminal in lasts[before]:
                        following[terminal] |= firsts[after]
        return following

    def _edges(self, step: int) -> dict[Symbol, set[Terminal]]:
        """Return the terminals that the texts of every symbol can begin with (`step` 1) or end with (-1)."""
        edges: dict[Symbol, set[Terminal]] = {terminal: {terminal} for terminal in self.terminals}
        edges |= {head: set() for head, _ in self._productions}
        changed = True
        while changed:
            changed = False
            for head, way in self._productions:
                for symbol in way[::step]:
                    changed |= not edges[symbol] <= edges[head]
                    edges[head] |= edges[symbol]
                    if symbol not in self._nullable:
                        break
        return edges

    # Lexer.

    def start(self) -> Position:
        return Position(None, True, frozenset({()}))

    def push(self, position: Position, text: str) -> Position | None:
        """Return None if no lexeme begins with `text`, or if the parser refuses a lexeme that has ended."""
        for byte in text:
            pushed = self._push_byte(position, byte)
            if pushed is None:
                return None
            position = pushed
        return position

    def _push_byte(self, position: Position, byte: str) -> Position | None:
        longer = Position((position.pending or "") + byte, position.at_start, position.readings)
        if self._alive(longer):
            return longer
        emitted = self._emit(position)
        if emitted is None or position.pending is None:
            return None
        begun = Position(byte, False, emitted.readings)
        return begun if self._alive(begun) else None

    def _emit(self, position: Position) -> Position | None:
        """The lexeme under way ends here."""
        if position.pending is None:
            return position
        matching = [t for t in self._competing(position) if self._matches(t, position)]
        if not matching:
            return None
        winners = matching if self.ambiguous else [min(matching, key=lambda terminal: terminal.rank)]
        readings = position.readings if any(winner in self.skip for winner in winners) else frozenset()
        readings |= {
            (*lexemes, winner)
            for lexemes in position.readings
            for winner in winners
            if winner in self.follow(lexemes)[0]
        }
        return Position(None, False, readings) if readings else None

    def _competing(self, position: Position) -> Sequence[Terminal]:
        if not self.contextual:
            return self.terminals
        viable = self._viable(position)
        return [t for t in self.terminals if t in viable or t in self.skip]

    def _viable(self, position: Position) -> set[Terminal]:
        return {terminal for lexemes in position.readings for terminal in self.follow(lexemes)[0]}

    def _alive(self, position: Position) -> bool:
        return any(self._matches(terminal, position, partial=True) for terminal in self._competing(position))

    def _matches(self, terminal: Terminal, position: Position, *, partial: bool = False) -> bool:
        assert position.pending is not None
        return _match(terminal, position.pending, partial) or (
            position.at_start
            and not self.ambiguous
            and terminal in self.skip
            and _match(terminal, "\n" + position.pending, partial)
        )

    # Parser.

    @cached_property
    def _productions(self) -> list[tuple[str, tuple[Symbol, ...]]]:
        return [("", (self.rules[0][0],)), *((head, way) for head, ways in self.rules for way in ways)]

    @cached_property
    def _nullable(self) -> set[str]:
        known: set[str] = set()
        while new := {head for head, way in self._productions if all(symbol in known for symbol in way)} - known:
            known |= new
        return known

    @cached_property
    def _lengths(self) -> dict[str, float]:
        """Return the fewest lexemes of every rule."""
        lengths = dict.fromkeys((head for head, _ in self._productions), math.inf)
        for _ in lengths:
            for head, way in self._productions:
                fewest = sum(1 if isinstance(symbol, Terminal) else lengths[symbol] for symbol in way)
                lengths[head] = min(lengths[head], fewest)
        return lengths

    def follow(self, lexemes: tuple[Terminal, ...]) -> tuple[frozenset[Terminal], bool]:
        """Return the terminals that may come next, and whether the input may end here."""
        return _follow(self, lexemes)

    def can_end(self, position: Position) -> bool:
        emitted = self._emit(position)
        return emitted is not None and any(self.follow(lexemes)[1] for lexemes in emitted.readings)

    # Completions.

    def can_complete(self, position: Position, num_bytes: int) -> bool:
        """Whether the input may end after some text of at most `num_bytes` bytes. Tries every such text."""
        return any(_completes(self, position, number) for number in range(num_bytes + 1))

    def completion(self, position: Position) -> str | None:
        """Return a text after which the input may end, or None. The search ends the lexeme under way and adds words,
        hardly more than the fewest possible, with or without a skipped lexeme before every word."""
        for start in self._texts(3):
            ended = self.push(position, start)
            emitted = self._emit(ended) if ended is not None else None
            if ended is None or emitted is None:
                continue
            rest = self._spell(ended, self._missing(emitted) + 1)
            if rest is not None:
                return start + rest
        return None

    def _spell(self, position: Position, num_words: float) -> str | None:
        """Return a text of at most `num_words` words, and skipped lexemes before the words, after which the input
        may end."""
        if self.can_end(position):
            return ""
        before = self._emit(position)
        if before is None:
            return None
        for terminal in sorted(self._viable(before), key=lambda t: self._missing_after(before, t)):
            if self._missing_after(before, terminal) + 1 > num_words:
                continue
            for blank, word in itertools.product((" ", "", "#\n", "\n#", "c "), self.words.get(terminal, ())):
                after = self.push(position, blank + word)
                emitted = self._emit(after) if after is not None else None
                if after is None or emitted is None or self._missing(emitted) + 1 > num_words:
                    continue
                rest = self._spell(after, num_words - 1)
                if rest is not None:
                    return blank + word + rest
        return None

    def _missing(self, position: Position) -> float:
        return min(_num_missing(self, lexemes) for lexemes in position.readings)

    def _missing_after(self, position: Position, terminal: Terminal) -> float:
        return min(
            _num_missing(self, (*lexemes, terminal))
            for lexemes in position.readings
            if terminal in self.follow(lexemes)[0]
        )

    def _texts(self, num_bytes: int) -> Iterator[str]:
        for length in range(num_bytes + 1):
            yield from map("".join, itertools.product(self.alphabet, repeat=length))

    @cached_property
    def words(self) -> dict[Terminal, list[str]]:
        """Return short texts of every terminal, without the texts that a better terminal matches unless ambiguous."""
        words: dict[Terminal, list[str]] = {}
        texts = [""]
        for _ in range(5):
            longer = [text + byte for text in texts for byte in self.alphabet]
            texts = [text for text in longer if any(_match(terminal, text, True) for terminal in self.terminals)]
            for text in texts:
                matching = [terminal for terminal in self.terminals if _match(terminal, text, False)]
                if matching and not self.ambiguous:
                    matching = [min(matching, key=lambda terminal: terminal.rank)]
                for terminal in matching:
                    words.setdefault(terminal, []).append(text)
        return words


@cache
def _match(terminal: Terminal, text: str, partial: bool) -> bool:
    if not terminal.is_regex:
        return terminal.text.startswith(text) if partial else terminal.text == text
    return regex.fullmatch(terminal.text, text, partial=partial) is not None


@cache
def _completes(grammar: OracleGrammar, position: Position, length: int) -> bool:
    """With exactly `length` bytes more."""
    if length == 0:
        return grammar.can_end(position)
    after = (grammar.push(position, byte) for byte in grammar.alphabet)
    return any(_completes(grammar, there, length - 1) for there in after if there is not None)


Item = tuple[int, int, int]  # production, dot, column of its start


@cache
def _columns(grammar: OracleGrammar, lexemes: tuple[Terminal, ...]) -> tuple[frozenset[Item], ...]:
    """Earley's sets, with Aycock and Horspool's treatment of empty rules."""
    productions = grammar._productions
    if lexemes:
        before = _columns(grammar, lexemes[:-1])
        items = {
            (number, dot + 1, began)
            for number, dot, began in before[-1]
            if dot < len(productions[number][1]) and productions[number][1][dot] == lexemes[-1]
        }
    else:
        before, items = (), {(0, 0, 0)}
    todo = list(items)
    here = len(lexemes)
    while todo:
        number, dot, began = todo.pop()
        head, body = productions[number]
        new: set[Item] = set()
        if dot == len(body):
            waiting = before[began] if began < here else frozenset(items)
            new = {(n, d + 1, b) for n, d, b in waiting if d < len(productions[n][1]) and productions[n][1][d] == head}
        elif isinstance(body[dot], str):
            new = {(n, 0, here) for n, (other, _) in enumerate(productions) if other == body[dot]}
            if body[dot] in grammar._nullable:
                new.add((number, dot + 1, began))
        todo += new - items
        items |= new
    return (*before, frozenset(items))


@cache
def _follow(grammar: OracleGrammar, lexemes: tuple[Terminal, ...]) -> tuple[frozenset[Terminal], bool]:
    items = _columns(grammar, lexemes)[-1]
    bodies = [(grammar._productions[number][1], dot) for number, dot, _ in items]
    nexts = {body[dot] for body, dot in bodies if dot < len(body)}
    return frozenset(s for s in nexts if isinstance(s, Terminal)), (0, 1, 0) in items


@cache
def _num_missing(grammar: OracleGrammar, lexemes: tuple[Terminal, ...]) -> float:
    """How many lexemes must follow at least until the input may end."""
    columns = _columns(grammar, lexemes)

    def length(body: tuple[Symbol, ...]) -> float:
        return sum(1 if isinstance(symbol, Terminal) else grammar._lengths[symbol] for symbol in body)

    after: dict[tuple[int, str], float] = {(0, ""): 0}  # (column, rule) -> fewest lexemes after such a rule
    changed = True
    while changed:
        changed = False
        for here, items in enumerate(columns):
            for number, dot, began in items:
                head, body = grammar._productions[number]
                if dot == len(body) or isinstance(body[dot], Terminal) or (began, head) not in after:
                    continue
                key, rest = (here, str(body[dot])), length(body[dot + 1 :]) + after[began, head]
                if rest < after.get(key, math.inf):
                    after[key] = rest
                    changed = True
    productions = grammar._productions
    return min(
        length(productions[number][1][dot:]) + after.get((began, productions[number][0]), math.inf)
        for number, dot, began in columns[-1]
    )


def _body(way: tuple[Symbol, ...]) -> str:
    return " ".join(s.quoted() if isinstance(s, Terminal) else s for s in way) or "%empty"
