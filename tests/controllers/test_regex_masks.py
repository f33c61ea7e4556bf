"""The masks of the regex guest, token by token, against an independent oracle."""

import re
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.fake_host import FakeHost, GuestModule, GuestStoppedError
from tests.support.regex_oracle import Automaton, Node, Position, render
from tests.support.regexes import ALPHABET, REGEXES
from tests.support.scale import scaled

_TEXT_TOKENS = st.text(ALPHABET, min_size=1, max_size=4).map(str.encode)
_CUT_TOKENS = st.builds(lambda raw, a, b: raw[a:b], _TEXT_TOKENS, st.integers(0, 3), st.integers(1, 5)).filter(bool)
# Surrogates, overlong forms, values beyond the last code point, and beginnings of such bytes.
_NOT_UTF8 = [
    b"\xed\xa0\x80",
    b"\xed\xa0",
    b"\xc0\x80",
    b"\xc1",
    b"\xe0\x9f",
    b"\xf0\x8f",
    b"\xf4\x90",
    b"\xf5",
    b"\x80",
]
_VOCABULARIES = st.lists(
    st.one_of(_TEXT_TOKENS, _CUT_TOKENS, st.binary(min_size=1, max_size=3)), min_size=1, max_size=40
).map(lambda tokens: [b"", *tokens, *(c.encode() for c in "ab0é€"), b"\xc3", b"\xa9", *_NOT_UTF8, b""])


def _check_forced(host: FakeHost, automaton: Automaton, here: Position) -> None:
    """Check that forced text has no alternative."""
    told = host.pre_process()
    assert (told["num_forks"], told["suspend"]) == (1, False)
    for byte in b"".join(host.vocabulary[token] for token in told["ff_tokens"]):
        assert not here.accepts(automaton)
        ways = {way: here.push(automaton, bytes([way])) for way in range(256)}
        [(only, after)] = [(way, after) for way, after in ways.items() if after is not None]
        assert only == byte
        here = after


def _compare(module: GuestModule, node: Node, vocabulary: list[bytes], draw: Any, *, ignore_case: bool) -> None:
    pattern = "(?ai)" * ignore_case + render(node)  # the oracle only knows the case of ASCII letters
    automaton = Automaton.of(node, ignore_case=ignore_case)
    eos = len(vocabulary) - 1
    host = FakeHost(module, vocabulary, eos=eos, arg=pattern.encode())
    host.init_prompt([1, 2])
    history = [Position(automaton.initial())]
    for _ in range(6):
        here = history[-1]
        _check_forced(host, automaton, here)
        after = {token: here.push(automaton, raw) for token, raw in enumerate(vocabulary) if raw}
        expected = {token for token, position in after.items() if position is not None}
        if here.accepts(automaton):
            expected.add(eos)
        if not expected:
            with pytest.raises(GuestStoppedError, match="no token of this vocabulary"):
                host.mid_process()
            return
        result = host.mid_process()
        if here.is_final(automaton):
            assert result == "Stop"
            return
        assert result == {"SampleWithBias": {}}
        assert host.allowed() == expected
        backtrack = draw(st.integers(0, len(history) - 1)) if draw(st.integers(0, 3)) == 0 else 0
        if backtrack:
            del history[-backtrack:]
            assert host.post_process([], backtrack)["stop"] is history[-1].is_final(automaton)
            continue
        token = draw(st.sampled_from(sorted(expected)))
        stop = host.post_process([token])["stop"]
        if token == eos:
            assert stop
            return
        position = after[token]
        assert position is not None
        assert stop is position.is_final(automaton)
        history.append(position)


@settings(max_examples=scaled(400), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(node=REGEXES, vocabulary=_VOCABULARIES, data=st.data(), ignore_case=st.booleans())
def test_masks(
    regex_module: GuestModule, node: Node, vocabulary: list[bytes], data: st.DataObject, ignore_case: bool
) -> None:
    _compare(regex_module, node, vocabulary, data.draw, ignore_case=ignore_case)


@settings(max_examples=scaled(400), deadline=None)
@given(node=REGEXES, texts=st.lists(st.text(ALPHABET, max_size=6), min_size=5, max_size=10), ignore_case=st.booleans())
def test_the_oracle_agrees_with_python(node: Node, texts: list[str], ignore_case: bool) -> None:
    automaton = Automaton.of(node, ignore_case=ignore_case)
    compiled = re.compile("(?i)" * ignore_case + render(node), re.ASCII)
    for text in texts:
        position = Position(automaton.initial()).push(automaton, text.encode())
        accepted = position is not None and position.accepts(automaton)
        assert accepted == bool(compiled.fullmatch(text)), text
