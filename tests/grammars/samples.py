"""The samples of every grammar, and mutated inputs, most of which are wrong."""

import re
import tomllib
from pathlib import Path
from random import Random
from typing import NamedTuple

_PIECE = re.compile(r"""\s+|\w+(?:\.\w+)?|"[^"\n]*"|'[^'\n]*'|\W""")


class Samples(NamedTuple):
    accept: list[str]
    refuse: list[str]


def samples(name: str) -> Samples:
    path = Path(__file__).parent / "samples" / f"{name}.toml"
    table = tomllib.loads(path.read_text(encoding="utf-8"))
    return Samples(table["accept"], table["refuse"])


class Mutations:
    """Takes samples apart into words, blanks and punctuation, and puts the pieces together with a few mistakes."""

    def __init__(self, texts: list[str]) -> None:
        self._samples = [_PIECE.findall(text) for text in texts]
        self._pieces = sorted({piece for pieces in self._samples for piece in pieces})

    def one(self, random: Random) -> str:
        pieces = list(random.choice(self._samples))
        for _ in range(random.choice([0, 1, 1, 1, 2, 3])):
            at = random.randrange(len(pieces) + 1)
            match random.randrange(6):
                case 0:
                    del pieces[at : at + random.randint(1, 3)]
                case 1:
                    pieces.insert(at, random.choice(self._pieces))
                case 2:
                    pieces[at : at + 1] = [random.choice(self._pieces)]
                case 3:
                    other = random.choice(self._samples)
                    start = random.randrange(len(other) + 1)
                    pieces[at:at] = other[start : start + random.randint(1, 8)]
                case 4:
                    pieces[at:at] = pieces[at - random.randint(1, 4) : at]
                case _:
                    text = "".join(pieces)
                    at = random.randrange(len(text) + 1)
                    pieces = _PIECE.findall(text[:at] + text[at + 1 :])
        return "".join(pieces)
