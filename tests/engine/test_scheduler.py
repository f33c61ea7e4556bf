"""The scheduler's promises under random load: budget and order are kept, every sequence ends, no page leaks."""

import itertools
from collections.abc import Iterable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from aici_base.ids import SeqId, TokenId
from aici_engine.cache.kvcache import KVCache
from aici_engine.config import BACKGROUND_PRIORITY, SamplingParams
from aici_engine.fair_shares import in_turn
from aici_engine.prefill_budget import PrefillBudget
from aici_engine.request import NOBODY, Share
from aici_engine.scheduler import Scheduler
from aici_engine.sequences.progress import Phase
from aici_engine.sequences.sequence import Sequence
from aici_engine.step_plan import PlannedChunk, StepPlan

PAGE_SIZE = 4
OWNERS = [NOBODY, Share(owner="a"), Share(owner="b", weight=2), Share(owner="c", most=1)]


def make(
    num_pages: int,
    max_num_seqs: int,
    max_batch_tokens: int,
    prefill_budget: PrefillBudget | None = None,
    depth: int = 1,
) -> tuple[Scheduler, KVCache]:
    cache = KVCache(num_pages=num_pages, page_size=PAGE_SIZE)
    return Scheduler(
        cache,
        max_num_seqs=max_num_seqs,
        max_batch_tokens=max_batch_tokens,
        prefill_budget=prefill_budget or PrefillBudget(None),
        depth=depth,
    ), cache


def sequence(
    seq_id: int,
    prompt_len: int,
    limit: int,
    *,
    at: float = 0.0,
    priority: int = 0,
    kind: int | None = None,
    share: Share = NOBODY,
) -> Sequence:
    """Return a sequence. Sequences of the same `kind` begin alike; sequences without a kind do not."""
    return Sequence(
        SeqId(seq_id),
        prompt=[TokenId(seq_id if kind is None else -kind)] * prompt_len,
        sampling=SamplingParams(),
        controller=None,
        limit=limit,
        sink=lambda event: None,
        submitted_at=at,
        priority=priority,
        share=share,
    )


def perform(plan: StepPlan, cache: KVCache) -> None:
    """Compute a plan, and sample the due tokens."""
    compute(plan, cache)
    for chunk in plan.chunks:
        if chunk.samples:
            chunk.seq.tokens.append(TokenId(0))


def compute(plan: StepPlan, cache: KVCache) -> None:
    for chunk in plan.chunks:
        chunk.seq.progress.num_computed += chunk.num_tokens
        cache.advance(chunk.seq.seq_id, chunk.seq.tokens, chunk.seq.progress.num_computed)


def fork(scheduler: Scheduler, chunk: PlannedChunk, seq_ids: Iterable[int]) -> None:
    """Fork a sequence between computing and sampling. A fork samples a token of its own."""
    for seq_id in seq_ids if chunk.samples else ():
        child, _ = chunk.seq.clone(SeqId(seq_id))
        scheduler.fork(chunk.seq, child)
        child.tokens.append(TokenId(0))


def cut(scheduler: Scheduler, seq: Sequence, num_tokens: int) -> None:
    """Remove tokens as a splice without new tokens."""
    del seq.tokens[max(1, len(seq.tokens) - num_tokens) :]
    seq.progress.num_computed = min(seq.progress.num_computed, len(seq.tokens) - 1)
    scheduler.settle(seq)


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


def test_decodes_go_on_beside_a_long_prompt() -> None:
    scheduler, cache = make(64, 4, 8)
    short, long = sequence(1, 3, 100), sequence(2, 80, 100)
    scheduler.add(short)
    scheduler.add(long)
    seen: list[dict[int, int]] = []
    for _ in range(6):
        scheduler.admit()
        plan = scheduler.decide()
        seen.append({int(chunk.seq.seq_id): chunk.num_tokens for chunk in plan.chunks})
        perform(plan, cache)
    assert seen == [{1: 3, 2: 5}] + [{1: 1, 2: 7}] * 5


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


def test_a_short_prompt_does_not_wait_for_a_long_one() -> None:
    scheduler, cache = make(4000, 4, 132)
    long, other = sequence(1, 6000, 6001), sequence(2, 5000, 5001)
    for seq in (long, other):
        scheduler.add(seq)
    num_steps = {}
    for step in range(100):
        if step % 2 == 0:
            scheduler.add(sequence(step + 10, 60, 61, at=float(step + 1)))
        scheduler.admit()
        perform(scheduler.decide(), cache)
        for seq in [seq for seq in scheduler.running if seq.room <= 0]:
            scheduler.remove(seq)
            num_steps[int(seq.seq_id)] = step
    # A short prompt is computed in the step of its arrival; nearly half of a step goes to the oldest prompt.
    assert [num_steps[step + 10] for step in range(0, 100, 2)] == list(range(0, 100, 2))
    assert num_steps[1] < 6000 / 66 + 1
    assert other.progress.num_computed > 0


def test_prompts_slow_decodes_down_no_more_than_is_wanted() -> None:
    """The scheduler must learn the costs: 10 ms a step, 1 ms a decoding sequence, 2 ms a token."""
    scheduler, cache = make(3000, 4, 512, PrefillBudget(4.0))
    for seq in (sequence(1, 10, 400), sequence(2, 3000, 3001), sequence(3, 2000, 2001)):
        scheduler.add(seq)
    times = []
    while any(seq.num_pending > 1 for seq in scheduler.running) or scheduler.waiting:
        scheduler.admit()
        plan = scheduler.decide()
        num_decodes = sum(chunk.num_tokens == 1 for chunk in plan.chunks)
        time_s = 0.01 + 0.001 * num_decodes + 0.002 * sum(chunk.num_tokens - 1 for chunk in plan.chunks)
        scheduler.record_time(plan, time_s)
        if num_decodes:
            times.append(time_s)
        perform(plan, cache)
        for seq in [seq for seq in scheduler.running if seq.room <= 0]:
            scheduler.remove(seq)
    assert 0.03 < max(times) < 0.06
    assert sum(times) / len(times) > 0.03
    assert min(times) == 0.011  # the learning phase


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


def test_a_suspended_sequence_gets_nothing_and_loses_its_pages_only_if_it_must() -> None:
    scheduler, cache = make(3, 4, 16)
    old, new = sequence(1, 3, 12), sequence(2, 3, 12)
    scheduler.add(old)
    scheduler.add(new)
    scheduler.admit()
    perform(scheduler.decide(), cache)
    new.guest.suspended = True
    for _ in range(2):
        plan = scheduler.decide()
        assert [chunk.seq for chunk in plan.chunks] == [old]
        perform(plan, cache)
    assert cache.holds(new.seq_id)
    for _ in range(4):
        perform(scheduler.decide(), cache)
    assert not cache.holds(new.seq_id)
    assert new.progress.phase is Phase.WAITING


def test_a_suspended_sequence_takes_no_slot_and_waits_for_none() -> None:
    scheduler, cache = make(16, 1, 16)
    first, second, third = (sequence(seq_id, 3, 9) for seq_id in (1, 2, 3))
    for seq in (first, second, third):
        scheduler.add(seq)
    first.guest.suspended = True
    scheduler.admit()
    assert [chunk.seq for chunk in scheduler.decide().chunks] == [second]
    second.guest.suspended = True
    scheduler.admit()
    assert [chunk.seq for chunk in scheduler.decide().chunks] == [third]
    # More sequences are awake than may run: the oldest goes on.
    second.guest.suspended = False
    plan = scheduler.decide()
    assert [chunk.seq for chunk in plan.chunks] == [second]
    assert cache.holds(third.seq_id)


def test_a_suspended_sequence_gives_its_pages_to_one_that_waits() -> None:
    scheduler, cache = make(3, 4, 16)
    old, new = sequence(1, 9, 12), sequence(2, 9, 12)
    scheduler.add(old)
    scheduler.add(new)
    scheduler.admit()
    perform(scheduler.decide(), cache)
    assert [seq.progress.phase for seq in (old, new)] == [Phase.RUNNING, Phase.WAITING]
    old.guest.suspended = True
    scheduler.admit()
    assert [seq.progress.phase for seq in (old, new)] == [Phase.WAITING, Phase.RUNNING]
    assert old.progress.num_computed == 0


def test_one_that_sleeps_gives_its_pages_before_one_that_works() -> None:
    scheduler, cache = make(4, 4, 16)
    old, new = sequence(1, 7, 16), sequence(2, 8, 16)
    for seq in (old, new):
        scheduler.add(seq)
    scheduler.admit()
    perform(scheduler.decide(), cache)
    old.guest.suspended = True
    plan = scheduler.decide()
    assert ([chunk.seq for chunk in plan.chunks], plan.preempted) == ([new], [old.seq_id])


def test_a_fork_that_comes_back_shares_again() -> None:
    scheduler, cache = make(8, 4, 32)
    root, other = sequence(1, 18, 26), sequence(2, 3, 16)
    for seq in (root, other):
        scheduler.add(seq)
    scheduler.admit()
    plan = scheduler.decide()
    compute(plan, cache)
    fork(scheduler, plan.chunks[0], [3])
    child = scheduler.running[1]
    child.tokens[-1] = TokenId(2)
    for seq, token in ((root, 1), (other, 0)):
        seq.tokens.append(TokenId(token))
    child.guest.suspended = True
    # Of 8 pages, `other` comes to need 4, and the root 5.
    while child.progress.phase is Phase.RUNNING:
        perform(scheduler.decide(), cache)
    assert not cache.holds(child.seq_id)
    scheduler.remove(other)
    child.guest.suspended = False
    scheduler.admit()
    cache.check_integrity()
    # Whole pages.
    assert (child.progress.num_computed, len(child.tokens)) == (16, 19)
    assert cache.page_table(child.seq_id) == cache.page_table(root.seq_id)[:4]
    [_, chunk] = scheduler.decide().chunks
    assert (chunk.num_tokens, chunk.samples) == (3, True)
    assert cache.page_table(child.seq_id)[:4] == cache.page_table(root.seq_id)[:4]
    assert cache.page_table(child.seq_id)[4] != cache.page_table(root.seq_id)[4]
    cache.check_integrity()


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


def test_of_those_that_begin_alike_and_come_together_one_computes_the_beginning() -> None:
    scheduler, cache = make(100, 8, 64)
    seqs = [sequence(seq_id, 41, 60, kind=1) for seq_id in range(1, 9)]
    for seq in seqs[1:]:
        seq.tokens[30:] = [TokenId(int(seq.seq_id))] * 11
    for seq in seqs:
        scheduler.add(seq)
    scheduler.admit()
    computed = []
    for _ in range(3):
        plan = scheduler.decide()
        computed.append([chunk.num_tokens for chunk in plan.chunks])
        perform(plan, cache)
        cache.check_integrity()
    # Of 41 tokens, 28 are in pages common to all sequences.
    assert computed == [[41], [1] + [13] * 4 + [11], [1] * 5 + [2] + [13] * 2]
    assert len({page for seq in seqs for page in cache.page_table(seq.seq_id)[:7]}) == 7
    assert [seq.progress.num_reused for seq in seqs] == [0] + [28] * 7


def test_nobody_waits_for_one_that_sleeps_or_gave_up_its_pages() -> None:
    scheduler, cache = make(100, 4, 8)
    first, second, third = (sequence(seq_id, 41, 60, kind=1) for seq_id in (1, 2, 3))
    for seq in (first, second, third):
        scheduler.add(seq)
    scheduler.admit()
    done: dict[int, int] = {}
    for num_steps in range(20):
        first.guest.suspended = num_steps > 1
        second.guest.suspended = num_steps in (3, 4)
        plan = scheduler.decide()
        perform(plan, cache)
        for chunk in plan.chunks:
            if chunk.samples:
                done.setdefault(int(chunk.seq.seq_id), num_steps)
    # 40 tokens are shared: 16 of the first, 8 of the second, 16 of the third. The last token is computed anew.
    assert done == {2: 5, 3: 5}
    assert (first.progress.num_reused, second.progress.num_reused, third.progress.num_reused) == (0, 32, 24)


def test_who_is_held_computes_nothing_and_keeps_its_pages() -> None:
    scheduler, cache = make(4, 4, 40)
    old, new = sequence(1, 8, 16), sequence(2, 8, 16)
    scheduler.add(old)
    scheduler.add(new)
    scheduler.admit()
    perform(scheduler.decide(), cache)
    # Both sequences need a page more, and no page is free.
    assert not scheduler.decide(held={new.group}).chunks
    assert scheduler.num_preemptions == 0
    assert [chunk.seq for chunk in scheduler.decide(held={old.group}).chunks] == []
    assert scheduler.num_preemptions == 0
    plan = scheduler.decide()
    assert [chunk.seq for chunk in plan.chunks] == [old]
    assert plan.preempted == [new.seq_id]


def test_decoding_requests_take_turns_in_steps_of_equal_size() -> None:
    scheduler, cache = make(40, 8, 40, depth=3)
    sequences = [sequence(1 + i, 3, 40) for i in range(6)]
    for seq in sequences:
        scheduler.add(seq)
    scheduler.admit()
    perform(scheduler.decide(), cache)
    steps = []
    for _ in range(6):
        plan = scheduler.decide(put_off=scheduler.put_off(frozenset()))
        perform(plan, cache)
        steps.append([chunk.seq.seq_id for chunk in plan.chunks])
    assert steps == [[1, 2], [3, 4], [5, 6]] * 2
    held = {sequences[0].group, sequences[1].group}
    assert scheduler.put_off(held) == {sequences[4].group, sequences[5].group}


def test_after_a_restart_sequences_are_computed_again_without_counting_as_preempted_or_cached() -> None:
    scheduler, cache = make(40, 8, 40)
    seq = sequence(1, 9, 20)
    scheduler.add(seq)
    scheduler.admit()
    perform(scheduler.decide(), cache)
    scheduler.restart()
    assert (scheduler.running, scheduler.waiting) == ([], [seq])
    assert (seq.progress.num_computed, seq.num_pending) == (0, 10)
    assert cache.take_forgotten() == [1]
    scheduler.admit()
    [chunk] = scheduler.decide().chunks
    assert chunk.num_tokens == 10
    assert (seq.progress.num_reused, scheduler.num_preemptions) == (0, 0)


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
