"""Tables of grammars against canonical LR(1) tables, Earley's algorithm, and outcomes known from yacc."""

import functools
import itertools
import random
from typing import Any

import lark
import pytest

from tests.support.guests import build_test_guest
from tests.support.lr_oracle import BuiltTable, CanonicalTable, derives
from tests.support.scale import scaled
from tests.support.small_grammars import TERMINALS, small_grammar
from tests.support.tool_guest import ToolGuest

_BATCH = 100
_TEXTS = ["".join(word) for size in range(6) for word in itertools.product(TERMINALS, repeat=size)]


@functools.cache
def _guest() -> ToolGuest:
    return ToolGuest(build_test_guest("grammar_tables"))


def tables(texts: list[str]) -> list[dict[str, Any]]:
    answers: list[dict[str, Any]] = _guest().ask({"grammars": texts})
    return answers


@pytest.mark.parametrize("seed", range(scaled(12)))
def test_tables_are_those_of_canonical_lr1(seed: int) -> None:
    """A conflict is reported iff the canonical tables have a conflict; without conflicts both accept the same texts."""
    rng = random.Random(seed)
    grammars = [small_grammar(rng) for _ in range(_BATCH)]
    num_compared = num_smaller = 0
    for grammar, answer in zip(grammars, tables([grammar.text() for grammar in grammars]), strict=True):
        canonical = CanonicalTable(grammar)
        if not canonical.complete:
            continue
        said = [problem["message"] for problem in answer["problems"] if "conflict" in problem["message"]]
        assert bool(said) == bool(canonical.conflicts), (grammar.text(), said)
        built = BuiltTable(answer["table"])
        if built.general:  # see test_grammar_general.py
            continue
        num_compared += 1
        num_smaller += built.num_states < len(canonical.states)
        assert built.num_states <= len(canonical.states)
        for text in _TEXTS:
            assert built.accepts(text) == canonical.accepts(text), (grammar.text(), text)
            if not built.settled and not canonical.conflicts:
                assert built.accepts(text) == derives(grammar, text), (grammar.text(), text)
    assert num_compared > 20
    assert num_smaller > 1


_OPERATORS = 's : s "+" s | s "*" s | s "^" s | s "<" s | "-" s %prec NEG | "(" s ")" | "a" ;'
_PRECEDENCES = '%nonassoc "<"\n%left "+"\n%left "*"\n%right NEG\n%right "^"\n%%\n'


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("a+a+a", "[[a+a]+a]"),
        ("a+a*a", "[a+[a*a]]"),
        ("a*a+a", "[[a*a]+a]"),
        ("a^a^a", "[a^[a^a]]"),
        ("-a+a", "[[-a]+a]"),
        ("-a^a", "[-[a^a]]"),
        ("--a*a", "[[-[-a]]*a]"),
        ("a<a+a", "[a<[a+a]]"),
        ("a<a<a", None),
        ("(a<a)<a", "[[([a<a])]<a]"),
        ("a+", None),
    ],
)
def test_precedence_is_that_of_yacc(text: str, tree: str | None) -> None:
    (answer,) = tables([_PRECEDENCES + _OPERATORS])
    assert not [problem for problem in answer["problems"] if problem["error"]]
    assert BuiltTable(answer["table"]).tree(text) == tree


def test_a_dangling_else_is_settled_by_precedence_and_belongs_to_the_nearer_if() -> None:
    rules = '%%\ns : "i" s %prec "i" | "i" s "e" s | "a" ;'
    (open_, settled) = tables([rules.replace(' %prec "i"', ""), f'%nonassoc "i"\n%nonassoc "e"\n{rules}'])
    (problem,) = open_["problems"]
    assert problem["example"] == "iia.e"
    assert BuiltTable(open_["table"]).tree("iiaea") == "[i[iaea]]"
    assert BuiltTable(settled["table"]).tree("iiaea") == "[i[iaea]]"


def test_what_lalr_merges_in_vain_is_no_conflict() -> None:
    """The classic example of an LR(1) grammar that is not LALR(1)."""
    (answer,) = tables(['%%\ns : "a" A "d" | "b" B "d" | "a" B "e" | "b" A "e" ;\nA : "c" ;\nB : "c" ;'])
    assert answer["problems"] == []
    built = BuiltTable(answer["table"])
    accepted = [text for text in ("acd", "bcd", "ace", "bce", "acc", "ac", "bd") if built.accepts(text)]
    assert accepted == ["acd", "bcd", "ace", "bce"]


def test_reduce_against_reduce_is_never_settled() -> None:
    (answer,) = tables(['%left "a"\n%%\ns : A | B ;\nA : "a" ;\nB : "a" ;'])
    (problem,) = answer["problems"]
    assert (problem["line"], problem["column"], problem["example"]) == (5, 5, "a.")
    assert '`A : "a" .` (line 4) or follow `B : "a" .` (line 5)' in problem["message"]


def test_lark_accepts_the_same() -> None:
    rng = random.Random(99)
    compared = 0
    grammars = [small_grammar(rng) for _ in range(_BATCH)]
    for grammar, answer in zip(grammars, tables([grammar.text() for grammar in grammars]), strict=True):
        built = BuiltTable(answer["table"])
        if built.settled or built.shifted or built.general:
            continue
        oracle = lark.Lark(grammar.lark_text(), start=grammar.rules[0].head.lower(), parser="earley", lexer="basic")
        for text in rng.sample(_TEXTS, 60):
            try:
                oracle.parse(text)
                expected = True
            except lark.exceptions.LarkError:
                expected = False
            assert built.accepts(text) == expected, (grammar.text(), text)
        compared += 1
    assert compared > 20
