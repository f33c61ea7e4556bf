"""Age and priority decide who runs and who gives way."""

import itertools
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from aici_base.ids import TokenId
from aici_engine.sequences.progress import Phase
from tests.engine.scheduler_bench import compute, fork, make, perform, sequence


@settings(max_examples=100, deadline=None)
@given(
    max_num_seqs=st.integers(1, 5),
    spare_tokens=st.integers(1, 12),
    requests=st.lists(
        st.tuples(st.integers(0, 80), st.integers(1, 120), st.integers(1, 9), st.integers(-1, 1)),
        min_size=1,
        max_size=24,
    ),
)
def test_who_comes_later_costs_nobody_his_turn(
    max_num_seqs: int, spare_tokens: int, requests: list[tuple[int, int, int, int]]
) -> None:
    """Newer sequences do not delay older sequences.

    A sequence ends within the steps that the sequence and all older sequences need one by one, with half of the budget
    beside the decoding sequences. A step takes two seconds, so priorities wear off half-way.
    """
    scheduler, cache = make(4000, max_num_seqs, max_num_seqs + spare_tokens)
    half = -(-spare_tokens // 2)
    arriving = {
        sequence(i + 1, prompt, prompt + output, at=2.0 * at, priority=priority): at
        for i, (at, prompt, output, priority) in enumerate(requests)
    }
    work = {seq: -(-seq.transcript.prompt_len // half) + seq.room for seq in arriving}
    waiting = dict(arriving)
    for step in itertools.count():
        for seq in [seq for seq, at in waiting.items() if at <= step]:
            del waiting[seq]
            scheduler.add(seq)
        scheduler.admit()
        plan = scheduler.decide()
        computed = {chunk.seq for chunk in plan.chunks}
        assert computed >= {seq for seq in scheduler.running[:max_num_seqs] if seq.num_pending == 1}
        perform(plan, cache)
        for seq in [seq for seq in scheduler.running if seq.room <= 0]:
            scheduler.remove(seq)
            ahead = [other for other in arriving if other.order <= seq.order]
            assert step - arriving[seq] < sum(work[other] for other in ahead)
        if not (waiting or scheduler.waiting or scheduler.running):
            return


def test_priorities_decide_who_runs_who_gives_way_and_for_how_long() -> None:
    scheduler, cache = make(8, 2, 16)
    plain, late, vital = sequence(1, 3, 20), sequence(2, 3, 20, at=1.0), sequence(3, 3, 20, at=2.0, priority=-1)
    for seq in (plain, late, vital):
        scheduler.add(seq)
        scheduler.admit()
    # The wake needs no free place: the newest sequence now waits, but keeps its pages.
    assert [seq.seq_id for seq in scheduler.running] == [3, 1, 2]
    assert [chunk.seq for chunk in scheduler.decide().chunks] == [vital, plain]
    assert cache.holds(late.seq_id)
    # A minute later a step of priority outweighs nothing any more.
    scheduler.add(sequence(4, 3, 20, at=61.0, priority=-1))
    scheduler.add(sequence(5, 3, 20, at=59.0, priority=-1))
    assert sorted([*scheduler.running, *scheduler.waiting], key=lambda seq: seq.order)[1:] == [
        scheduler.waiting[0], plain, late, scheduler.waiting[1]
    ]  # fmt: skip
    assert [seq.seq_id for seq in scheduler.waiting] == [5, 4]


def test_the_newest_gives_way_and_comes_back_first() -> None:
    scheduler, cache = make(4, 4, 16)
    old, new, later = sequence(1, 6, 14), sequence(2, 6, 14), sequence(3, 2, 8)
    for seq in (old, new, later):
        scheduler.add(seq)
    preempted: list[Any] = []
    for _ in range(4):
        scheduler.admit()
        plan = scheduler.decide()
        preempted += plan.preempted
        perform(plan, cache)
    assert preempted == [2]
    assert (new.progress.phase, new.progress.num_computed) == (Phase.WAITING, 0)
    assert [seq.seq_id for seq in scheduler.waiting] == [2, 3]
    assert [seq.seq_id for seq in scheduler.running] == [1]


def test_a_late_fork_is_older_than_requests_that_came_after_its_own() -> None:
    scheduler, cache = make(16, 2, 16)
    first, second = sequence(1, 3, 9), sequence(2, 3, 9)
    for seq in (first, second):
        scheduler.add(seq)
    scheduler.admit()
    plan = scheduler.decide()
    compute(plan, cache)
    fork(scheduler, plan.chunks[0], [3])
    for seq in (first, second):
        seq.tokens.append(TokenId(0))
    cache.check_integrity()
    assert [seq.seq_id for seq in scheduler.running] == [1, 3, 2]
    assert [chunk.seq.seq_id for chunk in scheduler.decide().chunks] == [1, 3]
