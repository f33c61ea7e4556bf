"""Grammars of Lark with an Indenter, against lark itself."""

from random import Random

import pytest
from lark import Lark
from lark.exceptions import LarkError
from lark.indenter import DedentError, Indenter

from aici_controllers.notations.reading import read_notation
from tests.support.notation_oracles import guest_verdicts
from tests.support.scale import scaled
from tests.support.tool_guest import ToolGuest

_TREE = r"""
start: _NL* item+
item: NAME ["(" NAME* ")"] _NL [_INDENT item+ _DEDENT]
NAME: /[a-z]+/
%declare _INDENT _DEDENT
%ignore " "
_NL: /(\r?\n[\t ]*)+/
"""


class _Lines(Indenter):
    NL_type = "_NL"
    OPEN_PAREN_types = ["LPAR"]  # noqa: RUF012 - as lark declares it
    CLOSE_PAREN_types = ["RPAR"]  # noqa: RUF012
    INDENT_type = "_INDENT"
    DEDENT_type = "_DEDENT"
    tab_len = 8


def _lark(text: str) -> bool:
    try:
        Lark(_TREE, parser="lalr", postlex=_Lines()).parse(text)
    except (LarkError, DedentError, AssertionError):  # a bracket that closes nothing is an AssertionError
        return False
    return True


def test_verdicts_are_those_of_lark(grammar_tool: ToolGuest) -> None:
    random = Random(5)
    pieces = ["a", "b(", ")", "(c)", "\n", "\n ", "\n  ", "\n    ", "\n\n", "a\n", "b\n  c\n", "d\n  e\n  f\nb", " "]
    texts = ["a\n" + "".join(random.choice(pieces) for _ in range(random.randrange(8))) for _ in range(scaled(300))]
    # The column of blanks at the end of a text is an indentation for lark only.
    texts = [text.rstrip(" \n") + end for text in texts for end in ("", "\n")]
    guest = read_notation(_TREE, syntax="lark")
    assert guest.error is None
    ours = [accepted for accepted, _ in guest_verdicts(grammar_tool, guest.guest.text, texts)]
    theirs = [_lark(text) for text in texts]
    assert 0.1 < sum(theirs) / len(texts) < 0.9
    assert [(text, our) for text, our, their in zip(texts, ours, theirs, strict=True) if our != their] == []


@pytest.mark.parametrize("name", ["_INDENT", "OTHER"])
def test_other_declared_terminals_are_refused(name: str) -> None:
    reading = read_notation(f"start: A {name}\nA: /a/\n%declare {name}\n", syntax="lark")
    assert reading.error
    assert "is declared with %declare" in reading.error[1]
