"""The masks of the guest `grammar` on small grammars, token by token, against an independent oracle."""

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from aici_controllers.catalog import guest_path
from tests.support.fake_host import FakeHost, GuestModule
from tests.support.grammar_oracle import OracleGrammar, Position
from tests.support.grammars import small_grammars
from tests.support.guests import shipped_guest
from tests.support.scale import scaled
from tests.support.tool_guest import ToolGuest

_NEAR, _FAR = 3, 5  # bytes tried after a token that is refused, and after one that is allowed


@pytest.fixture(scope="module")
def module() -> GuestModule:
    return shipped_guest("grammar")


@pytest.fixture(scope="module")
def tool(module: GuestModule) -> ToolGuest:
    assert module
    return ToolGuest(guest_path("grammar"))


def _check_mask(grammar: OracleGrammar, vocabulary: list[str], allowed: set[int], here: Position) -> None:
    for token, text in enumerate(vocabulary):
        after = grammar.push(here, text) if text else here
        if not text:
            right = grammar.can_end(here)
        elif token in allowed:
            right = after is not None and (grammar.completion(after) is not None or grammar.can_complete(after, _FAR))
        else:
            right = after is not None and grammar.can_complete(after, _NEAR)
        assert (token in allowed) == right, f"{text!r} after {here}\n{grammar.text()}"


@settings(
    max_examples=scaled(250),
    deadline=None,
    suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(grammar=small_grammars(), data=st.data())
def test_masks_of_small_grammars(
    module: GuestModule, tool: ToolGuest, grammar: OracleGrammar, data: st.DataObject
) -> None:
    letters = grammar.alphabet
    words = data.draw(st.lists(st.text(letters, min_size=2, max_size=5), max_size=20, unique=True)) if letters else []
    vocabulary = [*letters, *words, "x", ""]
    eos = len(vocabulary) - 1
    # If a contextual lexer never reads a terminal in one place but does in another, the check misses the problem.
    assume(not grammar.contextual or grammar.words.keys() >= set(grammar.terminals))
    assume(not grammar.runs_together)
    problems = tool.ask({"check": grammar.text()})["problems"]
    assume(all(problem["severity"] == "warning" for problem in problems))
    assume(not any("nothing can end" in problem["message"] for problem in problems))
    tokens = [word.encode() for word in vocabulary]
    host = FakeHost(module, tokens, eos=eos, arg=grammar.text().encode())
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
