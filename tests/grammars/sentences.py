"""Random sentences of a .y file, to compare with an independent parser.

Reads only the syntax of the shipped files. Precedence is ignored, because precedence never changes the accepted
texts.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from random import Random

# The texts of a named terminal: examples, or a function that makes a text.
Lexemes = Mapping[str, Sequence[str] | Callable[[Random], str]]

_WORD = re.compile(r"""\s+|//[^\n]*|/\*.*?\*/|"[^"\n]+"|'[^'\n]+'|%?\w+|%%|[:;|]""", re.DOTALL)


class Sentences:
    """`lexemes` names every rule that lists regexes. Alternatives with a keyword or a rule of `avoid` are not used."""

    def __init__(self, grammar: str, lexemes: Lexemes, *, avoid: Sequence[str] = (), between: str = " ") -> None:
        self._rules = {
            name: ways
            for name, ways in _rules(grammar).items()
            if name not in lexemes and name not in ("SKIP", "NEVER")
        }
        self._lexemes, self._between = lexemes, between
        self._start = next(iter(re.findall(r"%start (\w+)", grammar)))
        for ways in self._rules.values():
            ways[:] = [way for way in ways if not any(symbol.strip("\"'") in avoid for symbol in way)]
        self._heights = self._minimal_heights()

    def one(self, random: Random, budget: int) -> str:
        """Make about `budget` free choices of rules; after the budget, take the shortest way out."""
        lexemes: list[str] = []
        todo = [self._start]
        while todo:
            symbol = todo.pop()
            if symbol[0] in "\"'":
                text = symbol[1:-1]
                lexemes.append(_plain(text[1:-1]) if re.fullmatch("/.+/", text) else text)
            elif symbol in self._lexemes:
                source = self._lexemes[symbol]
                lexemes.append(source(random) if callable(source) else random.choice(source))
            else:
                ways = [way for way in self._rules[symbol] if self._height(way) < 1000]
                budget -= len(ways) > 1
                way = random.choice(ways) if budget > 0 else min(ways, key=self._height)
                todo.extend(reversed(way))
        return self._between.join(lexemes)

    def _height(self, way: Sequence[str]) -> int:
        return 1 + max((self._heights.get(symbol, 0) for symbol in way), default=0)

    def _minimal_heights(self) -> dict[str, int]:
        self._heights = dict.fromkeys(self._rules, 1000)
        for _ in self._rules:
            for name, ways in self._rules.items():
                self._heights[name] = min((self._height(way) for way in ways), default=1000)
        return self._heights


def _plain(regex: str) -> str:
    """Return the only text of a regex that has escapes and nothing else."""
    return re.sub(r"\\(.)", lambda escape: {"r": "\r", "n": "\n"}.get(escape[1], escape[1]), regex)


def _rules(grammar: str) -> dict[str, list[list[str]]]:
    words = [
        word for word in _WORD.findall(grammar.split("\n%%\n")[1]) if not word.startswith(("//", "/*")) and word.strip()
    ]
    rules: dict[str, list[list[str]]] = {}
    at = 0
    while at < len(words):
        name, ways, at = words[at], [[]], at + 2
        while words[at] != ";":
            if words[at] == "|":
                ways.append([])
            elif words[at] == "%prec":
                at += 1
            elif words[at] != "%empty":
                ways[-1].append(words[at])
            at += 1
        rules[name], at = ways, at + 1
    return rules
