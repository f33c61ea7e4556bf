"""Random patterns: the guest's automaton against `re`, and patterns of JSON Schema with look-around against `re`."""

import json
import re
from collections import Counter
from collections.abc import Iterator
from random import Random
from typing import Final

from tests.controllers.differential.findings import Finding, Tool
from tests.support.native_tool import NoAnswerError

_CHARS: Final = "aabbA01_- .é😀"
_LITERALS: Final = [*"aaabbA01_-", r"\.", " ", "é", "😀", r"\x41", r"\u00e9"]
_CLASSES: Final = [
    ".",
    r"\d",
    r"\w",
    r"\s",
    r"\D",
    r"\W",
    r"\S",
    "[ab]",
    "[^a]",
    "[a-b0]",
    r"[^\w]",
    "[^-a]",
    r"[\s\S]",
]
_QUANTIFIERS: Final = ["*", "+", "?", "{2}", "{0,2}", "{1,}", "*?", "+?", "{1,2}?"]
_ANCHORS: Final = ["^", "$", r"\b"]
_LOOKS: Final = ["(?=", "(?!", "(?<=", "(?<!"]
NUM_TEXTS: Final = 12


class Patterns:
    """Draws patterns in the common syntax of `re` and ECMA-262; with `looks`, with anchors and look-around."""

    def __init__(self, random: Random, *, looks: bool) -> None:
        self._random = random
        self._looks = looks

    def pattern(self) -> str:
        return self._alternatives(self._random.randint(1, 7), 0)

    def _alternatives(self, budget: int, depth: int) -> str:
        num = self._random.choice([1, 1, 1, 2, 3])
        return "|".join(self._sequence(max(1, budget // num), depth) for _ in range(num))

    def _sequence(self, budget: int, depth: int) -> str:
        return "".join(self._part(budget, depth) for _ in range(self._random.randint(0, min(budget, 4))))

    def _part(self, budget: int, depth: int) -> str:
        random = self._random
        if self._looks and random.random() < 0.25:
            if random.random() < 0.5 or depth > 2:
                return random.choice(_ANCHORS)
            opening = random.choice(_LOOKS)
            inner = (
                random.choice(_LITERALS + _CLASSES[:9])
                if "<" in opening
                else self._alternatives(budget // 2, depth + 1)
            )
            return f"{opening}{inner})"
        if budget > 1 and depth < 4 and random.random() < 0.35:
            atom = f"({random.choice(['', '?:'])}{self._alternatives(budget // 2, depth + 1)})"
        else:
            atom = random.choice(_LITERALS if random.random() < 0.7 else _CLASSES)
        return atom + (random.choice(_QUANTIFIERS) if random.random() < 0.3 else "")


def _text(random: Random) -> str:
    return "".join(random.choice(_CHARS) for _ in range(random.choice([0, 1, 1, 2, 2, 3, 3, 4, 6])))


def whole(tool: Tool, random: Random, counts: Counter[str]) -> Iterator[Finding]:
    """One pattern in the guest `regex`, whose pattern matches the whole text."""
    pattern = Patterns(random, looks=False).pattern()
    compiled = re.compile(pattern, re.ASCII)
    for text in {_text(random) for _ in range(NUM_TEXTS)}:
        answer = tool.ask({"pattern": pattern, "text": text})
        if "message" in answer:
            counts[f"declined: {answer['message']}"] += 1
            return
        expected = bool(compiled.fullmatch(text))
        counts["matching" if expected else "not matching"] += 1
        if answer["matches"] != expected:
            yield Finding(pattern, text, f"matches: {answer['matches']}, re: {expected}")
        if expected and answer["viable"] != len(text.encode()):
            yield Finding(pattern, text, f"viable: {answer['viable']}")


def search(tool: Tool, random: Random, counts: Counter[str]) -> Iterator[Finding]:
    """One pattern as `pattern` of JSON Schema, which is found anywhere in a string."""
    pattern = Patterns(random, looks=True).pattern()
    try:
        compiled = re.compile(re.sub(r"(?<!\\)\$", r"\\Z", pattern), re.ASCII)
    except re.error:  # look-behind of different lengths
        counts["not for re"] += 1
        return
    texts = list({_text(random) for _ in range(NUM_TEXTS)})
    question = {"schema": {"type": "string", "pattern": pattern}, "texts": [json.dumps(text) for text in texts]}
    try:
        answer = tool.ask(question)
    except NoAnswerError as error:
        yield Finding(pattern, "", str(error))
        return
    if answer.get("failed") or answer["problems"]:
        why = answer.get("failed") or answer["problems"][0]["message"]
        counts[f"declined: {re.sub(r'position [0-9]+', 'position N', why.splitlines()[0])}"] += 1
        if "no value satisfies" in why and any(compiled.search(text) for text in texts):
            yield Finding(pattern, "", "no value satisfies the pattern, it says")
        return
    for text, stopped in zip(texts, answer["texts"], strict=True):
        expected = bool(compiled.search(text))
        counts["found" if expected else "not found"] += 1
        if (stopped is None) != expected:
            yield Finding(pattern, text, f"accepted: {stopped is None}, re: {expected}")
