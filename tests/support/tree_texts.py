"""Random texts of a grammar's tree: sentences, and sentences with small mistakes."""

import random
import re
from typing import Final

from aici_controllers.notations.facts import holds
from aici_controllers.notations.tree import (
    Alt,
    Both,
    Chars,
    ExactText,
    Lexeme,
    Node,
    Not,
    Ref,
    Repeat,
    Seq,
    Shortest,
    Tree,
    walk,
)

_MAX_DEPTH: Final = 14
_ALPHABET: Final = [chr(code) for code in (10, *range(32, 127))] + list("éü€😀ß")


class Texts:
    """Draws texts from a tree. Texts of Both, Not and Shortest are guesses: an oracle decides about every text."""

    def __init__(self, tree: Tree, seed: int) -> None:
        self._tree = tree
        self._random = random.Random(seed)
        self._heights = _heights(tree)

    def sentence(self) -> str:
        text = self._draw(Ref(self._tree.start), 0)
        return text if self._random.random() < 0.9 else text.strip()

    def mistaken(self, text: str) -> str:
        """Return the text with a piece taken out, put in, doubled or replaced."""
        at = self._random.randint(0, len(text))
        to = min(len(text), at + self._random.choice([1, 1, 1, 2, 5]))
        piece = self._random.choice([*text, *_ALPHABET]) if text else self._random.choice(_ALPHABET)
        middle = self._random.choice(["", piece, piece + text[at:to], text[at:to] * 2])
        return text[:at] + middle + text[to:]

    def _draw(self, node: Node, depth: int) -> str:
        match node:
            case ExactText(value, caseless):
                return self._random.choice([value, value.upper(), value.lower()]) if caseless else value
            case Chars(source):
                return self._char(source)
            case Ref(name):
                rule = self._tree.rules.get(name) or self._tree.terminals[name]
                return self._draw(rule.body, depth + 1) + self._skipped(name in self._tree.terminals)
            case Lexeme(item):
                return self._draw(item, depth) + self._skipped(True)
            case Seq(items):
                return "".join(self._draw(item, depth) for item in items)
            case Alt(options):
                low = min(self._height(option) for option in options)
                short = [option for option in options if self._height(option) == low]
                return self._draw(self._random.choice(short if depth > _MAX_DEPTH else options), depth)
            case Repeat(item, low, high):
                most = low if depth > _MAX_DEPTH else min(low + 3, low + 3 if high is None else high)
                return "".join(self._draw(item, depth + 1) for _ in range(self._random.randint(low, most)))
            case Both(items):
                return self._draw(items[0], depth)
            case Shortest(item):
                return self._draw(item, depth)
            case Not():
                return self._random.choice(["", "a", "b1", "zz"])
        return ""

    def _skipped(self, is_lexeme: bool) -> str:
        if not is_lexeme or not self._tree.ignored or self._random.random() < 0.7:
            return ""
        return self._draw(self._random.choice(self._tree.ignored), _MAX_DEPTH)

    def _char(self, source: str) -> str:
        pattern = re.compile(source.replace("\\x22", '"'))
        candidates = [char for char in _ALPHABET if pattern.fullmatch(char)]
        if candidates:
            return self._random.choice(candidates)
        return next((chr(code) for code in range(0x3000) if pattern.fullmatch(chr(code))), "")

    def _height(self, node: Node) -> int:
        return max((self._heights.get(part.name, 0) for part in walk(node) if isinstance(part, Ref)), default=0)


def _heights(tree: Tree) -> dict[str, int]:
    """Return how deep the flattest sentence of each rule is."""
    heights = dict.fromkeys((*tree.rules, *tree.terminals), 99)

    def height(node: Node) -> int:
        match node:
            case Ref(name):
                return heights.get(name, 0) + 1
            case Alt(options):
                return min((height(option) for option in options), default=0)
            case Seq(items) | Both(items):
                return max((height(item) for item in items), default=0)
            case Repeat(item, low):
                return height(item) if low else 0
            case _:
                return 0

    for _ in range(40):
        for name in heights:
            rule = tree.rules.get(name) or tree.terminals[name]
            heights[name] = min(heights[name], height(rule.body) if holds(rule.body, Ref) else 0)
    return heights
