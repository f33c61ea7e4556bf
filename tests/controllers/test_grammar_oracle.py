"""The masks of the guest `grammar` on small grammars, token for token, against an oracle that works another way."""

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tests.support.fake_host import FakeHost, GuestModule, GuestStoppedError
from tests.support.grammar_oracle import OracleGrammar, Position
from tests.support.grammars import small_grammars
from tests.support.guests import shipped_guest
from tests.support.scale import scaled

_NEAR = 3  # so many bytes are tried after a token that is not allowed


@pytest.fixture(scope="module")
def module() -> GuestModule:
    return shipped_guest("grammar")


def _check_mask(grammar: OracleGrammar, vocabulary: list[str], allowed: set[int], here: Position) -> None:
    for token, text in enumerate(vocabulary):
        after = grammar.push(here, text) if text else here
        if not text:
            right = grammar.can_end(here)
        elif token in allowed:
            right = after is not None and grammar.completion(after) is not None
        else:
            right = after is not None and grammar.can_complete(after, _NEAR)
        assert (token in allowed) == right, f"{text!r} after {here}\n{grammar.text()}"


def _start(module: GuestModule, vocabulary: list[str], grammar: OracleGrammar) -> FakeHost | None:
    """None when the grammar has a conflict, or a rule that never ends."""
    tokens = [word.encode() for word in vocabulary]
    try:
        return FakeHost(module, tokens, eos=len(tokens) - 1, arg=grammar.text().encode())
    except GuestStoppedError as stopped:
        if "conflict" in str(stopped) or "can never end" in str(stopped):
            return None
        raise


@settings(
    max_examples=scaled(250),
    deadline=None,
    suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(grammar=small_grammars(), data=st.data())
def test_masks_of_small_grammars(module: GuestModule, grammar: OracleGrammar, data: st.DataObject) -> None:
    letters = grammar.alphabet
    assume(all(terminal in grammar.words or terminal in grammar.skip for terminal in grammar.terminals))
    words = data.draw(st.lists(st.text(letters, min_size=2, max_size=5), max_size=20, unique=True)) if letters else []
    vocabulary = [*letters, *words, "x", ""]
    eos = len(vocabulary) - 1
    host = _start(module, vocabulary, grammar)
    assume(host is not None)
    assert host is not None
    host.init_prompt()
    history = [grammar.start()]
    for _ in range(6):
        allowed = {eos} if host.mid_process() == "Stop" else host.allowed()
        _check_mask(grammar, vocabulary, allowed, history[-1])
        backtrack = data.draw(st.integers(0, len(history) - 1)) if data.draw(st.integers(0, 3)) == 0 else 0
        if backtrack:
            del history[-backtrack:]
            host.post_process([], backtrack)
            continue
        longest = sorted(allowed - {eos}, key=lambda token: -len(vocabulary[token]))
        if not longest:
            return
        token = data.draw(st.sampled_from(longest))
        host.post_process([token])
        after = grammar.push(history[-1], vocabulary[token])
        assert after is not None
        history.append(after)
