"""Masks of states that take a slice of the vocabulary as a whole, counted or not, against the oracle for regexes."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.fake_host import FakeHost, GuestModule
from tests.support.regex_oracle import (
    WORD,
    Automaton,
    Chars,
    Choice,
    Node,
    Position,
    Repeat,
    Sequence_,
    literal,
    render,
)
from tests.support.scale import scaled

_JSON = Chars(r'[^"\\\x00-\x1f]', ((0, 0x1F), (34, 34), (92, 92)), negated=True)
_BODIES = st.sampled_from(
    [
        _JSON,
        Chars(".", ((10, 10),), negated=True),
        Chars(r"\w", WORD),
        Chars("[a-z]", ((97, 122),)),
        Choice((_JSON, Sequence_((literal("\\"), literal("n"))))),
        Choice((_JSON, Sequence_((literal("a"), literal("b"))))),  # takes two code points in one turn
    ]
)
_COUNTS = st.one_of(
    st.tuples(st.integers(0, 3), st.integers(3, 14)).map(lambda c: (c[0], c[1], f"{{{c[0]},{c[1]}}}")),
    st.sampled_from([(0, None, "*"), (2, None, "{2,}")]),
)
_TAILS = st.sampled_from(
    [Sequence_(()), literal('"'), literal("b"), literal("é"), Choice((literal(" "), literal('"')))]
)
_STATES = st.builds(
    lambda head, body, counts, tail: Sequence_((head, Repeat(body, *counts), tail)),
    st.sampled_from([Sequence_(()), literal('"'), Repeat(literal("x"), 0, None, "*")]),
    _BODIES,
    _COUNTS,
    _TAILS,
)
_LETTERS = st.sampled_from('ab_9 "\\n\né€😀\x7f')
_TEXTS = st.text(_LETTERS, min_size=1, max_size=18).map(str.encode)
_CUT = st.builds(lambda raw, a, b: raw[a : len(raw) - b], _TEXTS, st.integers(0, 3), st.integers(0, 3)).filter(bool)
_VOCABULARIES = st.lists(st.one_of(_TEXTS, _CUT), min_size=5, max_size=60).map(
    lambda tokens: [*tokens, *(c.encode() for c in 'abx" é'), b"\xc3", b"\xa9", b""]
)


@settings(max_examples=scaled(300), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(node=_STATES, vocabulary=_VOCABULARIES, data=st.data())
def test_masks_of_slices(regex_module: GuestModule, node: Node, vocabulary: list[bytes], data: st.DataObject) -> None:
    automaton = Automaton.of(node)
    eos = len(vocabulary) - 1
    host = FakeHost(regex_module, vocabulary, eos=eos, arg=render(node).encode())
    position = Position(automaton.initial())
    for _ in range(4):
        after = {token: position.push(automaton, raw) for token, raw in enumerate(vocabulary) if raw}
        expected = {token for token, reached in after.items() if reached is not None}
        if position.accepts(automaton):
            expected.add(eos)
        if expected <= {eos}:
            return
        assert host.mid_process() == {"SampleWithBias": {}}
        assert host.allowed() == expected
        token = data.draw(st.sampled_from(sorted(expected - {eos})))
        host.post_process([token])
        reached = after[token]
        assert reached is not None
        position = reached


@pytest.mark.parametrize("count", [1, 5, 126, 127, 128, 200, 253, 300])
def test_counts_around_the_longest_token(regex_module: GuestModule, count: int) -> None:
    vocabulary = [b"a" * n for n in range(1, 255)] + ["é".encode() * n for n in range(1, 127)] + [b"<", b""]
    host = FakeHost(regex_module, vocabulary, eos=len(vocabulary) - 1, arg=f"[^<]{{0,{count}}}<".encode())
    host.mid_process()
    short = {token for token, raw in enumerate(vocabulary[:-2]) if len(raw.decode()) <= count}
    assert host.allowed() == short | {len(vocabulary) - 2}
