"""The samples that ship with every grammar: our verdict, and the verdict of an independent parser if the parser can
judge."""

from pathlib import Path

import pytest

from aici_controllers.catalog import grammar_names, grammar_path
from tests.grammars.node_oracles import need_oracle
from tests.grammars.oracles import ORACLES, luaparser
from tests.grammars.samples import samples
from tests.grammars.verdicts import verdicts
from tests.support.tool_guest import ToolGuest


def test_every_grammar_has_samples_and_an_oracle() -> None:
    folder = Path(__file__).parent / "samples"
    assert grammar_names() == sorted(ORACLES) == sorted(path.stem for path in folder.iterdir())


@pytest.mark.parametrize("name", grammar_names())
def test_samples(grammar_tool: ToolGuest, name: str) -> None:
    good, bad = samples(name)
    assert len(good) >= 15
    assert len(bad) >= 15
    answers = verdicts(grammar_tool, name, good + bad)
    assert [text for text, accepted in zip(good + bad, answers, strict=True) if accepted != (text in good)] == []


@pytest.mark.parametrize("name", grammar_names())
def test_the_oracle_agrees(name: str) -> None:
    need_oracle(name)
    good, bad = samples(name)
    opinions = [(text, ORACLES[name](text), text in good) for text in good + bad]
    assert [(text, opinion) for text, opinion, want in opinions if opinion not in (want, None)] == []
    assert sum(opinion is not None for _, opinion, _ in opinions) > len(opinions) / 2


def test_luaparser_agrees() -> None:
    wrong = [text for text in samples("lua").accept if not luaparser(text)]
    assert [text for text in wrong if "0x" not in text] == []  # luaparser knows no hexadecimal floats


@pytest.mark.parametrize("name", grammar_names())
def test_check_finds_nothing(grammar_tool: ToolGuest, name: str) -> None:
    answer = grammar_tool.ask({"check": grammar_path(name).read_text(encoding="utf-8")})
    # The check of the lexer is left out for three grammars: many words, in many contexts.
    is_large = name in ("html", "latex_math", "typescript")
    assert ["the lexer is too large to check" in one["message"] for one in answer["problems"]] == [True] * is_large
