"""%indentation: the columns of lines as terminals."""

from random import Random

import pytest

from tests.support.fake_host import FakeHost, GuestModule
from tests.support.tool_guest import ToolGuest

_LINES = """
%start file
%indentation NEWLINE INDENT DEDENT
%brackets "(" ")"
%option final_newline
%%
file: %empty | statements ;
statements: statement | statements statement ;
statement: NAME NEWLINE | NAME "(" names ")" NEWLINE | "if" NAME ":" block ;
block: NEWLINE INDENT statements DEDENT | NAME NEWLINE ;
names: %empty | names NAME ;
NAME: "/[a-z]+/" ;
NEWLINE: "/(\\r?\\n[ \\t\\f]*(#[^\\n]*)?)+/" ;
SKIP: "/[ \\t\\f]+/" | "/#[^\\n]*/" | "/\\\\\\r?\\n/" ;
"""
_GOOD = [
    "",
    "\n",
    "a",
    "a\n",
    "\n\n# c\n\na\n",
    "  # x\na",
    "a # x\r\nb",
    "if a: b\nc",
    "if a:\n b\n",
    "if a:\n b\n c\nd",
    "if a:\n b\n if c:\n  \td\n  \te\n",
    "if a:\n if b:\n  c\n d",
    "if a:\n if b:\n  c\ne",
    "if a:\n\tb\n\tc",
    "if a:\n\n  # c\n  b\n\n # d\nc",
    "if a:\n  b\n ",
    "if a:\n b\n # x",
    "if a:\n \f b\n b",
    "a(\n b\n   c\n) \nd",
    "if a:\n b(\nc\n )\n d",
    "a \\\n\nb",
    "a(b \\\n c)",
    "a(" + " " * 1500 + "\n" + " " * 1500 + "b)",
]
_BAD = [
    " a",
    " \n a",
    "a\n b",
    "a b",
    "if a:",
    "if a:\n",
    "if a:\nb",
    "if a:\n\\\n b",
    "if a:\n  b\n c",
    "if a:\n\n#\nb",
    "if a:\n        b\n\tc",
    "if a:\n b\n if c:\n\td\n",
    "if a:\n  if b:\n      c\n    d",
    "a(\nb",
    "a(b\n",
    "if a:\n if b:\n  c\n  ) d",
    "if a:\n" + " " * 1500 + "b",
]


def test_verdicts(grammar_tool: ToolGuest) -> None:
    answers = grammar_tool.ask({"accepts": {"grammar": _LINES, "inputs": _GOOD + _BAD}})["answers"]
    assert [text for text, one in zip(_GOOD, answers, strict=False) if not one["accepted"]] == []
    assert [text for text, one in zip(_BAD, answers[len(_GOOD) :], strict=True) if one["accepted"]] == []


@pytest.mark.parametrize("option", ["", "%glr-parser\n", "%option contextual\n", "%option ambiguous\n"])
def test_other_parsers_and_lexers_agree(grammar_tool: ToolGuest, option: str) -> None:
    answers = grammar_tool.ask({"accepts": {"grammar": option + _LINES, "inputs": _GOOD + _BAD}})["answers"]
    assert [one["accepted"] for one in answers] == [True] * len(_GOOD) + [False] * len(_BAD)


def test_the_last_newline_is_needed_without_the_option(grammar_tool: ToolGuest) -> None:
    grammar, inputs = _LINES.replace("%option final_newline", ""), ["a", "a\n", "if a:\n b", "if a:\n b\n", ""]
    answers = grammar_tool.ask({"accepts": {"grammar": grammar, "inputs": inputs}})["answers"]
    assert [one["accepted"] for one in answers] == [False, True, False, True, True]


def _vocabulary() -> list[bytes]:
    pieces = ["a", "if", "if a:", ":", "(", ")", "()", "#", "# x", " ", "  ", "\t", "\n", "\n\n", "\\\n", "\r\n"]
    lines = [
        first + "\n" + " " * columns + last for first in ("", ":", "b", ")") for columns in range(5) for last in "a#"
    ]
    deep = [
        "if a:\n if b:\n  c\n",
        ":\n  a\n b",
        ":\n  a\nb",
        "a\n\n \n  a",
        "(\n a\n",
        "\n)\n a",
        "\n\ta",
        "\n        a",
    ]
    return [b"", *(text.encode() for text in dict.fromkeys(pieces + lines + deep))]


def test_masks_allow_exactly_the_tokens_that_can_follow(grammar_module: GuestModule, grammar_tool: ToolGuest) -> None:
    """Compared with a walk byte by byte, for tokens that hold several lines."""
    vocabulary, random = _vocabulary(), Random(1)
    host = FakeHost(grammar_module, vocabulary, eos=0, arg=_LINES.encode())
    host.init_prompt([1])
    for _ in range(12):
        text, num_tokens = b"", 0
        for _ in range(12):
            host.pre_process()
            if host.mid_process() == "Stop":
                break
            inputs = [(text + token).decode() for token in vocabulary]
            answers = grammar_tool.ask({"accepts": {"grammar": _LINES, "inputs": inputs}})["answers"]
            fits = {token for token, one in enumerate(answers) if token and one["at"] == len(inputs[token].encode())}
            if answers[0]["complete"]:
                fits.add(0)
            assert host.allowed() == fits, text
            token = random.choice(sorted(fits - {0}))
            host.post_process([token])
            text, num_tokens = text + vocabulary[token], num_tokens + 1
        host.post_process([], num_tokens)


@pytest.mark.parametrize(
    ("grammar", "message"),
    [
        (
            '%indentation N I\n%%\ns: "a" ;',
            "%indentation names three terminals: the newline, the indentation and its end",
        ),
        ('%brackets "("\n%%\ns: "a" ;', "%brackets names pairs: an opening text, then the closing text"),
        ('%brackets "a" "b"\n%%\ns: "a" "b" ;', "%brackets says nothing without %indentation"),
        (
            '%indentation N I D\n%%\ns: "a" N I D ;\nN: "/\\n+/" | "b" ;',
            "%indentation N: the newline is one terminal, a rule that is one quoted regex",
        ),
        (
            '%indentation N I D\n%%\ns: "a" N I D ;\nN: "/\\n+/" ;\nI: "b" ;',
            "I stands for a change of the indentation, which has no text: give it a name that nothing else has",
        ),
        (
            '%option scannerless\n%indentation N I D\n%%\ns: "a" N I D ;\nN: "/\\n+/" ;',
            "a scannerless grammar has no %indentation: no lexer finds the lines",
        ),
    ],
)
def test_messages(grammar_tool: ToolGuest, grammar: str, message: str) -> None:
    problems = grammar_tool.ask({"check": grammar})["problems"]
    assert message in [problem["message"] for problem in problems]
