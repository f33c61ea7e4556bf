"""The general parser of the guest `grammar`, on grammars that are not LR(1), against Earley's algorithm and lark."""

import functools
import itertools
import random

import lark
import pytest

from aici_controllers.catalog import guest_path
from aici_controllers.grammar_check import Verdict
from tests.support.lr_oracle import END, Rule, SmallGrammar, derives, viable
from tests.support.scale import scaled
from tests.support.small_grammars import TERMINALS, small_grammar
from tests.support.tool_guest import ToolGuest

_TEXTS = ["".join(word) for size in range(6) for word in itertools.product(TERMINALS, repeat=size)]
_NAMES = {"end of input": END}


@functools.cache
def _guest() -> ToolGuest:
    return ToolGuest(guest_path("grammar"))


def _verdicts(grammar: str, texts: list[str]) -> list[Verdict]:
    answers = _guest().ask({"accepts": {"grammar": f"%glr-parser\n{grammar}", "inputs": texts}})["answers"]
    return [Verdict(**answer) for answer in answers]


def _engine(grammar: str) -> str:
    engine: str = _guest().ask({"check": f"%glr-parser\n{grammar}"})["summary"]["engine"]
    return engine


@pytest.mark.parametrize("seed", range(scaled(12)))
def test_random_grammars(seed: int) -> None:
    """Verdict, first refused letter and what may follow there, for all short texts; some long ones."""
    rng = random.Random(seed)
    num_general = 0
    for _ in range(20):
        grammar = SmallGrammar(small_grammar(rng).rules)
        num_general += _engine(grammar.text()) == "general"
        texts = rng.sample(_TEXTS, 60) + ["".join(rng.choices(TERMINALS, k=14)) for _ in range(10)]
        for text, verdict in zip(texts, _verdicts(grammar.text(), texts), strict=True):
            at, follow = viable(grammar, text)
            expected = {_NAMES.get(name, name.strip('"')) for name in verdict.expected}
            assert verdict.accepted == derives(grammar, text), (grammar.text(), text)
            assert (verdict.at, expected, verdict.complete) == (at, follow, END in follow), (grammar.text(), text)
    assert num_general > 1


_AMBIGUOUS = {
    "sums": SmallGrammar((Rule("S", ("S", "b", "S")), Rule("S", ("a",)))),
    "rows": SmallGrammar((Rule("S", ("S", "S")), Rule("S", ("a",)), Rule("S", ("b",)))),
    "triples": SmallGrammar((Rule("S", ("S", "S", "S")), Rule("S", ("a",)), Rule("S", ("S", "b")))),
    "palindromes": SmallGrammar((Rule("S", ("a", "S", "a")), Rule("S", ("b", "S", "b")), Rule("S", ("a",)))),
    "to the right": SmallGrammar((Rule("S", ("a", "S")), Rule("S", ("a", "S", "b")), Rule("S", ("a",)))),
}


@pytest.mark.parametrize("name", _AMBIGUOUS)
def test_ambiguous_grammars_against_lark(name: str) -> None:
    grammar = _AMBIGUOUS[name]
    oracle = lark.Lark(grammar.lark_text(), start="s", parser="earley", lexer="basic")
    rng = random.Random(1)
    texts = ["".join(rng.choices("ab", k=rng.randint(1, 9))) for _ in range(80)]
    for text, verdict in zip(texts, _verdicts(grammar.text(), texts), strict=True):
        try:
            oracle.parse(text)
            accepted = True
        except lark.exceptions.LarkError:
            accepted = False
        assert verdict.accepted == accepted, text


@pytest.mark.parametrize("name", _AMBIGUOUS)
def test_long_texts_stay_within_bounds(name: str) -> None:
    """The work grows with the cube of the length at worst."""
    (verdict,) = _verdicts(_AMBIGUOUS[name].text(), [("ab" if name == "sums" else "a") * 100 + "a"])
    assert verdict.accepted
    assert _guest().fuel_used < 2_000_000_000


def test_a_body_of_many_optional_rules() -> None:
    rules = "".join(f'o{n} : %empty | "{letter}" ;\n' for n, letter in enumerate("abcdefghijklmnop"))
    grammar = f'%%\ns : {" ".join(f"o{n}" for n in range(16))} s | "!" ;\n{rules}'
    texts = ["!", "abc!", "cba!", "ponmlkjihgfedcba!", "acegikmo!", "abcp", "ab!c"]
    assert [verdict.accepted for verdict in _verdicts(grammar, texts)] == [True] * 5 + [False] * 2
