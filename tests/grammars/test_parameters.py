"""Parametric rules of llguidance's Lark, `rule::_`: written out here, compared with llguidance itself."""

import random

import pytest

from aici_controllers.catalog import guest_path
from aici_controllers.notations.reading import read_notation
from tests.support.notation_oracles import Llguidance, guest_verdicts
from tests.support.tool_guest import ToolGuest

GRAMMARS = {
    "permutations": """
start    :  perm::0x0
perm::_  :  ""                       %if is_ones([0:3])
         |  "a" perm::set_bit(0)     %if bit_clear(0)
         |  "b" perm::set_bit(1)     %if bit_clear(1)
         |  "c" perm::set_bit(2)     %if bit_clear(2)
""",
    "each at least once": """
start: some::0
some::_: "" %if is_ones([0:3]) | "a" some::set_bit(0) | "b" some::set_bit(1) | "c" some::bit_or(4)
""",
    "two counts": """
start : list::0x0
list::_ : "a" list::incr([0:3])  %if lt([0:3], 2)
        | "b" list::incr([3:6])  %if le([3:6], 1)
        | ""                     %if not(and(is_zeros([0:3]), eq([3:6], 0)))
""",
    "a choice of one to three": """
start    :  pick::0x0
pick::_  :  ""                       %if bit_count_ge(_, 1)
         |  "a" pick::set_bit(0)     %if and(bit_clear(0), bit_count_lt(_, 3))
         |  "b" pick::set_bit(1)     %if and(bit_clear(1), bit_count_lt(_, 3))
         |  "c" pick::set_bit(2)     %if or(bit_clear(2), bit_count_lt(_, 1))
""",
    "as many as before": """
start: up::0
up::_: "a" up::incr([0:4]) %if ne(_, 6)
     | down::_
down::_: "b" down::decr([0:4]) %if gt(_, 0)
     | "c" %if is_zeros(_)
""",
}


@pytest.mark.parametrize("name", GRAMMARS)
def test_texts_are_those_of_llguidance(name: str) -> None:
    theirs = Llguidance(GRAMMARS[name])
    assert not theirs.problem
    reading = read_notation(GRAMMARS[name], syntax="lark")
    assert not reading.error
    luck = random.Random(name)
    texts = sorted({"".join(luck.choices("abc", k=luck.randint(0, 8))) for _ in range(250)} | {"aaabbbc", "abc", "cba"})
    ours = guest_verdicts(ToolGuest(guest_path("grammar")), reading.guest.text, texts)
    assert dict(zip(texts, [one for one, _ in ours], strict=True)) == {text: theirs.verdict(text)[0] for text in texts}
    assert {one for one, _ in ours} == {True, False}


def test_rules_that_never_end_are_left_out() -> None:
    """llguidance takes x::1 for x::7 where both begin at one place; its documentation has it as here."""
    grammar = """
start: x::7 "c" | "a"* x::1
x::_: "a" x::clear_bit(0) %if bit_set(0) | "b" %if eq([0:3], 0)
"""
    texts = ["ab", "aaab", "abc", "b", "", "a"]
    reading = read_notation(grammar, syntax="lark")
    ours = guest_verdicts(ToolGuest(guest_path("grammar")), reading.guest.text, texts)
    assert [one for one, _ in ours] == [True, True, False, False, False, False]


@pytest.mark.parametrize(
    ("grammar", "said"),
    [
        ('start: x\nx::_: "a"', "1:8: x has a parameter: give a number, such as x::0"),
        ('start: x::1\nx: "a"', "1:8: x has no parameter"),
        ('start: y::1\nx: "a"', "1:8: y is not defined"),
        ('start: x::set_bit(1)\nx::_: "a"', "1:11: set_bit speaks of a parameter, and this rule has none"),
        ('start: x::0\nx::_: "a" %if odd(_)', "2:15: expected one of true, bit_clear"),
        ('start: x::0\nx::_: "a" %if eq(_)', "2:19: expected , and a further argument of eq"),
        ('start: x::0\nx::_: "a" %if lt([3:3], 1)', "2:18: bits go from a smaller number"),
        ('start: x::0\nx::_: "a" x::set_bit(64)', "2:14: a parameter has 64 bits"),
        ('start: x::0\nx::_: "a" %if bit_set(0)', "1:1: no text: for some parameter"),
        ('start: x::0\nx::_: "a" x::incr(_)', "2:11: parameters make more than 2000 rules"),
        ('start: X::0\nX: "a"', "1:8: X has no parameter"),
        ('start: X\nX::_: "a"', "2:5: a terminal has no parameter"),
    ],
)
def test_what_is_refused(grammar: str, said: str) -> None:
    error = read_notation(grammar, syntax="lark").error
    assert error
    assert said in f"{error[0].line}:{error[0].column}: {error[1]}"
