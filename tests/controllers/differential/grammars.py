"""Random context-free grammars over single characters in three notations, against lark's Earley parser.

Each terminal is one character, so that all ways of dividing a text into lexemes are the same, and the grammars may be
ambiguous, left-recursive and nullable.
"""

import itertools
from collections import Counter
from collections.abc import Iterator
from random import Random
from typing import Any, Final

from aici_controllers.notations.reading import read_notation
from aici_controllers.notations.tree import GrammarSyntax
from tests.controllers.differential.findings import Finding, Tool
from tests.support.native_tool import NoAnswerError
from tests.support.notation_oracles import LarkEarley

Rules = dict[str, list[list[str]]]
_LETTERS: Final = "abc"
_MAX_TEXT: Final = 5


def random_rules(random: Random) -> Rules:
    """Return rules by name; the first is the start. A symbol of one letter is a terminal."""
    names = [f"r{number}" for number in range(random.randint(1, 4))]
    rules: Rules = {}
    for name in names:
        symbols = [*_LETTERS, *names]
        ways = [random.choices(symbols, k=random.choice([0, 1, 1, 2, 2, 3])) for _ in range(random.randint(1, 3))]
        rules[name] = [way for at, way in enumerate(ways) if way not in ways[:at]]
    return rules


def written(rules: Rules, syntax: GrammarSyntax) -> str:
    first, colon, empty, end = {
        "lark": ("start: r0", ":", "", ""),
        "gbnf": ("root ::= r0", "::=", '""', ""),
        "y": ("%glr-parser\n%start r0\n%%", ":", "%empty", ";"),
    }[syntax]
    lines = [first]
    for name, ways in rules.items():
        sides = [" ".join(f'"{symbol}"' if len(symbol) == 1 else symbol for symbol in way) or empty for way in ways]
        lines.append(f"{name} {colon} {' | '.join(sides)} {end}")
    return "\n".join(lines) + "\n"


def sentences(rules: Rules, random: Random) -> Iterator[str]:
    """Yield texts of the grammar that are not too long."""
    for _ in range(12):
        text, todo = "", ["r0"]
        for _ in range(60):
            if not todo:
                break
            symbol = todo.pop()
            if len(symbol) == 1:
                text += symbol
            else:
                todo += reversed(random.choice(rules[symbol]))
        if not todo and len(text) < 30:
            yield text


def random_grammar(tool: Tool, random: Random, counts: Counter[str]) -> Iterator[Finding]:
    rules = random_rules(random)
    oracle = LarkEarley(written(rules, "lark"))
    if oracle.problem:
        counts["not for lark"] += 1
        return
    texts = ["".join(letters) for num in range(4) for letters in itertools.product(_LETTERS, repeat=num)]
    texts = random.sample(texts, 12)
    texts += ["".join(random.choices(_LETTERS, k=random.randint(4, _MAX_TEXT))) for _ in range(6)]
    texts = list(dict.fromkeys([*texts, *sentences(rules, random)]))
    try:
        expected = [oracle.accepts(text) for text in texts]
    except (RecursionError, AssertionError, KeyError, TypeError, IndexError) as error:  # faults of lark
        counts[f"lark fails: {type(error).__name__}"] += 1
        return
    for syntax in ("lark", "gbnf", "y"):
        yield from _compared(tool, syntax, written(rules, syntax), list(zip(texts, expected, strict=True)), counts)


def _compared(
    tool: Tool, syntax: GrammarSyntax, source: str, texts: list[tuple[str, bool]], counts: Counter[str]
) -> Iterator[Finding]:
    guest_text = source
    if syntax != "y":
        reading = read_notation(source, syntax=syntax)
        if reading.error:
            counts[f"{syntax}: declined: {reading.error[1]}"] += 1
            return
        guest_text = reading.guest.text
    question = {"accepts": {"grammar": guest_text, "inputs": [text for text, _ in texts]}}
    try:
        answer: Any = tool.ask(question)
    except NoAnswerError:
        counts[f"{syntax}: no answer in time"] += 1
        yield Finding(source, "", f"{syntax}: no answer in time")
        return
    if "answers" not in answer:
        why = str(answer.get("problem") or answer.get("failed")).splitlines()[0].partition("error: ")[2]
        counts[f"{syntax}: refused: {why[:60]}"] += 1
        if any(accepted for _, accepted in texts) and "ends" in why:
            yield Finding(source, "", f"{syntax}: {answer}")
        return
    for (text, accepted), one in zip(texts, answer["answers"], strict=True):
        if "problem" in one:
            counts[f"{syntax}: too ambiguous for a text"] += 1
            if syntax != "gbnf":
                yield Finding(source, text, f"{syntax}: {one['problem']}")
            continue
        counts[f"{syntax}: {'accepted' if accepted else 'refused'} texts"] += 1
        if one["accepted"] != accepted:
            yield Finding(source, text, f"{syntax}: accepted: {one['accepted']}, lark: {accepted}")
