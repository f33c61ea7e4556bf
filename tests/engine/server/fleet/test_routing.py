"""Which replica gets a request."""

from hypothesis import given
from hypothesis import strategies as st

from aici_engine.server.fleet.routing import RUNNING_TOKENS, ReplicaLoad, choose, cost

LOADS = st.builds(
    ReplicaLoad,
    replica=st.integers(1, 9),
    cached_tokens=st.integers(0, 500),
    waiting_tokens=st.integers(0, 2000),
    num_open=st.integers(0, 40),
    num_places=st.integers(1, 32),
    num_requests=st.integers(0, 99),
)


def idle(replica: int, *, cached_tokens: int = 0, **load: int) -> ReplicaLoad:
    return ReplicaLoad(
        replica=replica,
        cached_tokens=cached_tokens,
        waiting_tokens=load.get("waiting_tokens", 0),
        num_open=load.get("num_open", 0),
        num_places=load.get("num_places", 8),
        num_requests=load.get("num_requests", 0),
    )


@given(st.integers(0, 1000), st.lists(LOADS, min_size=1, max_size=5))
def test_no_other_replica_costs_less(prompt_len: int, loads: list[ReplicaLoad]) -> None:
    assert cost(prompt_len, choose(prompt_len, loads)) == min(cost(prompt_len, load) for load in loads)


@given(LOADS, st.integers(0, 500))
def test_more_work_never_costs_less(load: ReplicaLoad, prompt_len: int) -> None:
    fields = {name: getattr(load, name) for name in ReplicaLoad.__slots__}
    assert cost(prompt_len, ReplicaLoad(**fields | {"num_open": load.num_open + 1})) > cost(prompt_len, load)
    assert cost(prompt_len, ReplicaLoad(**fields | {"waiting_tokens": load.waiting_tokens + 1})) > cost(
        prompt_len, load
    )


def test_a_cached_beginning_draws_until_the_replica_has_too_much_to_do() -> None:
    other = idle(2)
    few, many = 100 // RUNNING_TOKENS - 1, 100 // RUNNING_TOKENS + 1
    assert choose(120, [idle(1, cached_tokens=100, num_open=few), other]).replica == 1
    assert choose(120, [idle(1, cached_tokens=100, num_open=many), other]).replica == 2
    assert choose(120, [idle(1, cached_tokens=100, waiting_tokens=101), other]).replica == 2


def test_a_replica_with_a_free_place_comes_before_a_full_one() -> None:
    assert choose(120, [idle(1, cached_tokens=112, num_open=8), idle(2, num_open=7)]).replica == 2


def test_idle_replicas_take_turns() -> None:
    assert choose(10, [idle(1, num_requests=3), idle(2, num_requests=2), idle(3, num_requests=3)]).replica == 2
