"""Sequences in the background delay no other sequence."""

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from aici_engine.config import BACKGROUND_PRIORITY
from tests.engine.scheduler_bench import make, perform, sequence


def _steps_of(
    requests: list[tuple[int, int, int]], others: list[tuple[int, int, int]], num_pages: int
) -> dict[int, int]:
    """Return the step in which each of `requests`, (arrival, prompt, output), ends. `others` are in the background."""
    scheduler, cache = make(num_pages, 3, 12)
    arriving = [
        (at, sequence(i + 1 + 100 * (work is others), prompt, prompt + output, at=float(at), priority=priority))
        for work, priority in ((requests, 0), (others, BACKGROUND_PRIORITY))
        for i, (at, prompt, output) in enumerate(work)
    ]
    ends: dict[int, int] = {}
    for step in itertools.count():
        for at, seq in arriving:
            if at == step:
                scheduler.add(seq)
        scheduler.admit()
        ready = [seq for seq in scheduler.running if not seq.clock.is_background]
        plan = scheduler.decide()
        cache.check_integrity()
        assert plan.chunks or not scheduler.running
        assert not ready or not any(chunk.seq.clock.is_background for chunk in plan.chunks)
        perform(plan, cache)
        for seq in [seq for seq in scheduler.running if seq.room <= 0]:
            scheduler.remove(seq)
            ends[int(seq.seq_id)] = step
        if len(ends) == len(arriving):
            assert cache.usage == 0.0
            return {seq_id: end for seq_id, end in ends.items() if seq_id < 100}
        assert step < 5000, "somebody starves"
    raise AssertionError


_WORK = st.tuples(st.integers(0, 30), st.integers(1, 16), st.integers(1, 12))


@settings(max_examples=150, deadline=None)
@given(st.lists(_WORK, min_size=1, max_size=6), st.lists(_WORK, max_size=6), st.integers(7, 30))
def test_the_background_delays_nobody(
    requests: list[tuple[int, int, int]], others: list[tuple[int, int, int]], num_pages: int
) -> None:
    """Requests end in the same steps as without sequences in the background, also if pages are few; all end."""
    assert _steps_of(requests, others, num_pages) == _steps_of(requests, [], num_pages)


def test_a_step_in_the_background_is_short() -> None:
    for priority, most in ((0, 1000), (BACKGROUND_PRIORITY, 128)):
        scheduler, _ = make(1000, 8, 1000)
        for seq_id in range(1, 5):
            scheduler.add(sequence(seq_id, 400, 500, priority=priority))
        scheduler.admit()
        assert sum(chunk.num_tokens for chunk in scheduler.decide().chunks) == most
