"""When a fleet grows and shrinks."""

from collections.abc import Iterable
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from aici_engine.server.fleet.scaling import FleetLoad, ScalingRules, Trend

RULES = ScalingRules(least=1, most=3, up_wait_s=1.0, up_after_s=2.0, down_after_s=10.0)


def played(loads: Iterable[tuple[int, float]], *, num_replicas: int = 1, step_s: float = 0.5) -> list[int]:
    """Return the number of replicas after each step. `loads`: open sequences, and the oldest wait."""
    trend, history = Trend(), []
    for number, (num_open, wait_s) in enumerate(loads):
        seen = FleetLoad(at_s=number * step_s, num_replicas=num_replicas, num_open=num_open, oldest_wait_s=wait_s)
        trend, change = RULES.decide(trend, seen)
        num_replicas += change
        history.append(num_replicas)
    return history


def test_a_long_wait_adds_a_replica_and_idleness_ends_it() -> None:
    history = played([(8, 3.0)] * 5 + [(8, 0.0)] * 4 + [(0, 0.0)] * 21)
    assert history == [1] * 4 + [2] * 25 + [1]


def test_a_short_wait_adds_nothing() -> None:
    assert set(played([(8, 3.0), (8, 3.0), (8, 0.5)] * 10)) == {1}


def test_one_long_request_alone_adds_nothing() -> None:
    assert set(played([(1, 9.0)] * 40)) == {1}, "a second replica would not help"


def test_there_are_never_more_than_the_most() -> None:
    assert played([(50, 9.0)] * 40)[-1] == 3


@given(
    st.lists(st.tuples(st.integers(0, 20), st.floats(0, 5)), max_size=200),
    st.integers(1, 3),
    st.floats(0.1, 3),
)
def test_the_number_stays_within_the_bounds(loads: list[tuple[int, float]], first: int, step_s: float) -> None:
    assert all(1 <= number <= 3 for number in played(loads, num_replicas=first, step_s=step_s))


@given(st.lists(st.tuples(st.integers(0, 20), st.floats(0, 5)), max_size=200))
def test_changes_keep_their_distance(loads: list[tuple[int, float]]) -> None:
    """Two changes have at least the shorter of the two times between them."""
    history = [1, *played(loads)]
    changes = [at for at, (before, after) in enumerate(pairwise(history)) if before != after]
    assert all(later - earlier >= 4 for earlier, later in pairwise(changes))
