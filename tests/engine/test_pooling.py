"""Pooling of final states: the vector depends on the states, and not on the chunks in which they come."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aici_engine.pooling import FinalStates, PromptPooling
from aici_engine.pooling_kinds import POOLINGS, Pooling


def pooled(pooling: Pooling, states: FinalStates, ends: list[int]) -> FinalStates | None:
    """Add the states in chunks that end at `ends`, and of each chunk the states that are asked for."""
    prompt = PromptPooling(pooling, len(states))
    for end in ends:
        assert prompt.vector() is None
        prompt.add(states[end - prompt.num_states(end) : end])
    return prompt.vector()


@given(st.data())
def test_a_vector_does_not_depend_on_the_chunks(data: st.DataObject) -> None:
    num_tokens = data.draw(st.integers(1, 40))
    spread = np.random.default_rng(data.draw(st.integers(0, 99))).normal(size=(num_tokens, 7)) * 10.0 ** np.arange(
        -3, 4
    )
    states: FinalStates = spread.astype(np.float32)
    cuts = sorted(data.draw(st.sets(st.integers(1, num_tokens))) - {num_tokens})
    for pooling, wanted in (("mean", states.astype(np.float64).mean(0)), ("last", states[-1])):
        whole = pooled(pooling, states, [num_tokens])
        split = pooled(pooling, states, [*cuts, num_tokens])
        assert whole is not None
        assert split is not None
        np.testing.assert_allclose(whole, wanted, rtol=1e-6)
        assert whole.tobytes() == split.tobytes()


@pytest.mark.parametrize("pooling", POOLINGS)
def test_only_states_that_were_not_pooled_are_asked_for(pooling: Pooling) -> None:
    prompt = PromptPooling(pooling, 10)
    assert prompt.num_reusable == (0 if pooling == "mean" else 9)
    prompt.add(np.ones((prompt.num_states(6), 2), np.float32))
    # After a preemption: a chunk of tokens whose states were pooled, then a chunk with four that were not.
    assert (prompt.num_states(5), prompt.num_reusable) == (0, 6 if pooling == "mean" else 9)
    assert prompt.num_states(10) == (4 if pooling == "mean" else 1)
    prompt.add(np.full((prompt.num_states(10), 2), 3.0, np.float32))
    vector = prompt.vector()
    assert vector is not None
    np.testing.assert_allclose(vector, [1.8, 1.8] if pooling == "mean" else [3.0, 3.0])
    assert prompt.num_reusable == 9
