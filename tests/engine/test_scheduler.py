"""The scheduler's promises under random load: budget and order are kept, every sequence ends, no page leaks."""

import itertools
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aici_base.ids import TokenId
from aici_engine.fair_shares import in_turn
from aici_engine.request import NOBODY, Share
from tests.engine.scheduler_bench import PAGE_SIZE, compute, cut, fork, make, sequence

if TYPE_CHECKING:
    from aici_engine.sequences.sequence import Sequence

OWNERS = [NOBODY, Share(owner="a"), Share(owner="b", weight=2), Share(owner="c", most=1)]


@settings(max_examples=150, deadline=None)
@given(
    num_pages=st.integers(6, 30),
    max_num_seqs=st.integers(1, 6),
    spare_tokens=st.integers(1, 20),
    requests=st.lists(
        st.tuples(st.integers(0, 30), st.integers(1, 20), st.integers(1, 20), st.integers(0, 2), st.integers(0, 3)),
        min_size=1,
        max_size=10,
    ),
    suspensions=st.lists(st.tuples(st.integers(0, 60), st.integers(0, 12), st.integers(1, 20)), max_size=12),
    forks=st.lists(st.tuples(st.integers(0, 40), st.integers(0, 9), st.integers(1, 5)), max_size=6),
    splices=st.lists(st.tuples(st.integers(0, 60), st.integers(0, 9), st.integers(0, 9)), max_size=8),
)
def test_everybody_ends_within_the_budget(
    num_pages: int, max_num_seqs: int, spare_tokens: int, requests: list[tuple[int, int, int, int, int]],
    suspensions: list[tuple[int, int, int]], forks: list[tuple[int, int, int]], splices: list[tuple[int, int, int]],
) -> None:  # fmt: skip
    """With several owners, forks of sampled sequences, suspensions for a few steps (also of waiting sequences), and
    removed tokens."""
    budget = max_num_seqs + spare_tokens
    scheduler, cache = make(num_pages, max_num_seqs, budget)
    capacity = num_pages * PAGE_SIZE
    arriving = [
        (
            at,
            sequence(
                i + 1, min(prompt, capacity - 1), min(prompt + output, capacity), kind=kind or None, share=OWNERS[owner]
            ),
        )
        for i, (at, prompt, output, kind, owner) in enumerate(requests)
    ]
    pending = dict(enumerate(arriving))
    num_steps = 0
    ids = itertools.count(100)
    asleep: dict[Sequence, int] = {}
    while pending or scheduler.waiting or scheduler.running:
        for key in [key for key, (at, _) in pending.items() if at <= num_steps]:
            scheduler.add(pending.pop(key)[1])
        scheduler.admit()
        for index, seq in enumerate([*scheduler.running, *scheduler.waiting]):
            starts = [until for at, i, num in suspensions if (at, i) == (num_steps, index) for until in [at + num]]
            asleep[seq] = max([asleep.get(seq, 0), *starts])
            seq.guest.suspended = asleep[seq] > num_steps
        ready = [seq for seq in scheduler.running if not seq.suspended]
        first = next(iter(in_turn(ready)), None)
        oldest_progress = None if first is None else (first, first.progress.num_computed)
        plan = scheduler.decide()
        cache.check_integrity()
        assert sum(chunk.num_tokens for chunk in plan.chunks) <= budget
        assert len(plan.chunks) <= max_num_seqs
        assert plan.chunks or not ready
        assert not any(chunk.seq.suspended for chunk in plan.chunks)
        assert all(chunk.num_tokens > 0 for chunk in plan.chunks)
        assert all(chunk.samples == (chunk.num_tokens == chunk.seq.num_pending) for chunk in plan.chunks)
        assert not {chunk.seq.seq_id for chunk in plan.chunks} & set(plan.preempted)
        for queue in (scheduler.waiting, scheduler.running):
            assert queue == sorted(queue, key=lambda seq: (seq.group.request_id, seq.seq_id))
        compute(plan, cache)
        if oldest_progress is not None:
            assert oldest_progress[0].progress.num_computed > oldest_progress[1]
        for at, index, num in forks:
            if at == num_steps and index < len(plan.chunks):
                fork(scheduler, plan.chunks[index], itertools.islice(ids, num))
        cache.check_integrity()
        for chunk in plan.chunks:
            if chunk.samples:
                chunk.seq.tokens.append(TokenId(0))
        for seq in [seq for seq in scheduler.running if seq.room <= 0]:
            scheduler.remove(seq)
        for at, index, num_tokens in splices:
            if at == num_steps and index < len(scheduler.running):
                cut(scheduler, scheduler.running[index], num_tokens)
        num_steps += 1
        assert num_steps < 5000, "somebody starves"
    assert cache.usage == 0.0


def test_a_step_has_room_for_a_token_of_each_sequence() -> None:
    make(num_pages=8, max_num_seqs=4, max_batch_tokens=4)
    with pytest.raises(AssertionError, match="no room"):
        make(num_pages=8, max_num_seqs=4, max_batch_tokens=3)
