"""The regex guest against `re`, `regex` and llguidance: matching texts, and texts that can still become a match."""

import re
from typing import Any

import llguidance
import pytest
import regex
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tests.support.fake_host import GuestModule
from tests.support.regex_oracle import Node, render
from tests.support.regex_patterns import TEXT_ALPHABET, patterns
from tests.support.regex_tool import RefusedError, RegexTool
from tests.support.regexes import ALPHABET, REGEXES
from tests.support.scale import scaled

_QUICK: dict[str, Any] = {
    "deadline": None,
    "suppress_health_check": [HealthCheck.function_scoped_fixture, HealthCheck.filter_too_much],
}
_TEXTS = st.lists(st.text(TEXT_ALPHABET, max_size=5), min_size=4, max_size=8)
_WITH_ACCENTS = st.lists(st.text(TEXT_ALPHABET + "\u0301", max_size=5), min_size=4, max_size=8)


@pytest.fixture(scope="session")
def tool(regex_module: GuestModule) -> RegexTool:
    return RegexTool(regex_module)


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error:  # such as an anchor under a quantifier
        assume(False)
        raise


@settings(max_examples=scaled(250), **_QUICK)
@given(pattern=patterns(anchors=True), texts=_WITH_ACCENTS)
def test_matches_are_those_of_re(tool: RegexTool, pattern: str, texts: list[str]) -> None:
    compiled = _compiled(pattern)
    for text in texts:
        refusal, matches = "", False
        try:
            matches = tool.ask(pattern, text).matches
        except RefusedError as refused:
            refusal = str(refused)
        assume("anchors in a repetition" not in refusal)
        assert not refusal or re.search("never holds|matches no character", refusal)
        assert matches == bool(compiled.fullmatch(text)), text


@settings(max_examples=scaled(250), **_QUICK)
@given(pattern=patterns(anchors=False), texts=_TEXTS)
def test_beginnings_are_those_of_regex(tool: RegexTool, pattern: str, texts: list[str]) -> None:
    """A text can become a match exactly if `regex` finds a partial match.

    `regex` finds too many with lazy counts and treats accents as word characters: see the guest's README.
    """
    _compiled(pattern)
    compiled = regex.compile(re.sub(r"([*}])\?", r"\1", pattern), regex.VERSION0)
    for text in texts:
        answer = tool.ask(pattern, text)
        partial = compiled.fullmatch(text, partial=True) is not None
        assert (answer.viable == len(text.encode())) == partial, text


def _without_escapes(node: Node) -> str:
    """Classes with Unicode's meaning in llguidance, written out."""
    text = render(node)
    for letter, members in {"d": "0-9", "w": "0-9A-Za-z_", "s": "\\t-\\r "}.items():
        text = text.replace(f"\\{letter}]", f"{members}]")  # the last code point of a class
        text = text.replace(f"\\{letter}", f"[{members}]").replace(f"\\{letter.upper()}", f"[^{members}]")
    return text


@settings(max_examples=scaled(120), **_QUICK)
@given(node=REGEXES, texts=st.lists(st.text(ALPHABET, max_size=6).map(str.encode), min_size=4, max_size=8))
def test_beginnings_are_those_of_llguidance(tool: RegexTool, node: Node, texts: list[bytes]) -> None:
    pattern = _without_escapes(node)
    tokenizer: Any = llguidance.LLTokenizer("byte")
    grammar = llguidance.LLMatcher.grammar_from_regex(pattern)
    for text in texts:
        matcher = llguidance.LLMatcher(tokenizer, grammar)
        assert not matcher.get_error()
        answer = tool.ask(pattern, text.decode())
        assert answer.viable == matcher.validate_tokens(list(text)), text
        if answer.viable == len(text):
            assert matcher.consume_tokens(list(text))
            assert answer.matches == matcher.is_accepting(), text
