"""Features of the shipped grammars beyond yacc: `%option caseless` and the rule NEVER."""

import pytest

from aici_base.errors import NotFoundError
from aici_controllers.catalog import grammar_path
from tests.support.tool_guest import ToolGuest

_CASELESS = """
%start s
%option caseless
%%
s: "Select" NAME | "SELECT" "é" ;
NAME: "/[a-z]+/" ;
SKIP: "/ +/" ;
"""
_NEVER = """
%start s
%%
s: s item | item ;
item: "/[0-9]+/" | "/[a-z]+/" ;
NEVER: "/[0-9]+[a-z]+/" | "b" ;
SKIP: "/ +/" ;
"""


@pytest.mark.parametrize(
    ("grammar", "good", "bad"),
    [
        (_CASELESS, ["select a", "SELECT a", "sElEcT a", "select é"], ["selec a", "select A", "select É"]),
        (_NEVER, ["1 a", "a1", "12 ab 3", "ab"], ["1a", "12ab", "b", "a b"]),
        (_NEVER.replace("%%", "%option contextual\n%%", 1), ["1 a", "a1"], ["1a", "b"]),
    ],
)
def test_verdicts(grammar_tool: ToolGuest, grammar: str, good: list[str], bad: list[str]) -> None:
    answers = grammar_tool.ask({"accepts": {"grammar": grammar, "inputs": good + bad}})["answers"]
    assert [answer["accepted"] for answer in answers] == [True] * len(good) + [False] * len(bad)


@pytest.mark.parametrize(
    ("grammar", "message"),
    [
        ('%%\ns: "a" NEVER ;\nNEVER: "b" ;', "NEVER cannot be used in a rule: what it lists is refused everywhere"),
        (
            '%%\ns: "a" "b" ;\nNEVER: "b" ;',
            '"b" is under NEVER, so that no rule ever sees it: use it in one of the two',
        ),
        ('%%\ns: "a" ;\nNEVER: "b" "c" ;', "each alternative of NEVER is one quoted text, and nothing else"),
        ('%start NEVER\n%%\ns: "a" ;\nNEVER: "b" ;', "the rule of %start, NEVER, is not defined"),
        ('%%\nNEVER: "b" ;', "the grammar has no rule but those of the lexer, SKIP and NEVER"),
        (
            '%option caselss\n%%\ns: "a" ;',
            "unknown option caselss: there are contextual, caseless, ambiguous, scannerless and final_newline",
        ),
        ('%option caseless\n%left "A" "a"\n%%\ns: "a" ;', "a has a precedence already, from line 2"),
    ],
)
def test_messages(grammar_tool: ToolGuest, grammar: str, message: str) -> None:
    problems = grammar_tool.ask({"check": grammar})["problems"]
    assert message in [problem["message"] for problem in problems]


def test_an_unknown_grammar_names_the_nearest() -> None:
    with pytest.raises(NotFoundError, match="no shipped grammar is called 'jsn'") as error:
        grammar_path("jsn")
    assert error.value.hint == "did you mean json?"
