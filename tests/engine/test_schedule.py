"""What the scheduler promises, under random load: budgets kept, order kept, everybody ends, nothing leaks."""

import itertools
from collections.abc import Iterable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from aici_engine.cache.ids import PageId
from aici_engine.cache.kvcache import KVCache
from aici_engine.config import SamplingParams
from aici_engine.schedule import Decision, Scheduler, Work
from aici_engine.sequence import Phase, Sequence
from aici_runtime.ids import SeqId, TokenId

PAGE_SIZE = 4


class NoTensors:
    def copy_page(self, source: PageId, target: PageId) -> None: ...


def make(num_pages: int, max_num_seqs: int, max_batch_tokens: int) -> tuple[Scheduler, KVCache]:
    cache = KVCache(num_pages=num_pages, page_size=PAGE_SIZE, copier=NoTensors())
    return Scheduler(cache, max_num_seqs=max_num_seqs, max_batch_tokens=max_batch_tokens), cache


def sequence(seq_id: int, prompt_len: int, limit: int) -> Sequence:
    return Sequence(
        SeqId(seq_id),
        prompt=[TokenId(0)] * prompt_len,
        sampling=SamplingParams(),
        controller=None,
        limit=limit,
        sink=lambda event: None,
        submitted_at=0.0,
    )


def perform(decision: Decision, cache: KVCache) -> None:
    """Compute, and sample one token where that is due."""
    compute(decision, cache)
    for work in decision.work:
        if work.samples:
            work.seq.tokens.append(TokenId(0))


def compute(decision: Decision, cache: KVCache) -> None:
    for work in decision.work:
        work.seq.num_computed += work.num_tokens
        cache.advance(work.seq.seq_id, work.seq.num_computed)


def fork(scheduler: Scheduler, work: Work, seq_ids: Iterable[int]) -> None:
    """Between computing and sampling; each samples a token of its own."""
    for seq_id in seq_ids if work.samples else ():
        child, _ = work.seq.clone(SeqId(seq_id))
        scheduler.fork(work.seq, child)
        child.tokens.append(TokenId(0))


def cut(scheduler: Scheduler, seq: Sequence, num_tokens: int) -> None:
    """As a splice does that appends nothing."""
    del seq.tokens[max(1, len(seq.tokens) - num_tokens) :]
    seq.num_computed = min(seq.num_computed, len(seq.tokens) - 1)
    scheduler.truncated(seq)


@settings(max_examples=150, deadline=None)
@given(
    num_pages=st.integers(6, 30),
    max_num_seqs=st.integers(1, 6),
    spare_tokens=st.integers(1, 20),
    requests=st.lists(st.tuples(st.integers(0, 30), st.integers(1, 20), st.integers(1, 20)), min_size=1, max_size=10),
    suspensions=st.lists(st.tuples(st.integers(0, 60), st.integers(0, 12), st.integers(1, 20)), max_size=12),
    forks=st.lists(st.tuples(st.integers(0, 40), st.integers(0, 9), st.integers(1, 5)), max_size=6),
    splices=st.lists(st.tuples(st.integers(0, 60), st.integers(0, 9), st.integers(0, 9)), max_size=8),
)
def test_everybody_ends_within_the_budget(
    num_pages: int, max_num_seqs: int, spare_tokens: int, requests: list[tuple[int, int, int]],
    suspensions: list[tuple[int, int, int]], forks: list[tuple[int, int, int]], splices: list[tuple[int, int, int]],
) -> None:  # fmt: skip
    """Forks of those that are sampled, suspensions for some steps, of those that wait too, and cuts into the past."""
    budget = max_num_seqs + spare_tokens
    scheduler, cache = make(num_pages, max_num_seqs, budget)
    capacity = num_pages * PAGE_SIZE
    arriving = [
        (at, sequence(i + 1, min(prompt, capacity - 1), min(prompt + output, capacity)))
        for i, (at, prompt, output) in enumerate(requests)
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
            seq.suspended = asleep[seq] > num_steps
        ready = [seq for seq in scheduler.running if not seq.suspended]
        oldest_progress = (ready[0], ready[0].num_computed) if ready else None
        decision = scheduler.decide()
        cache.check_integrity()
        assert sum(work.num_tokens for work in decision.work) <= budget
        assert len(decision.work) <= max_num_seqs
        assert decision.work or not ready
        assert not any(work.seq.suspended for work in decision.work)
        assert all(work.num_tokens > 0 for work in decision.work)
        assert all(work.samples == (work.num_tokens == work.seq.num_pending) for work in decision.work)
        assert not {work.seq.seq_id for work in decision.work} & set(decision.preempted)
        for queue in (scheduler.waiting, scheduler.running):
            assert queue == sorted(queue, key=lambda seq: (seq.group.request_id, seq.seq_id))
        compute(decision, cache)
        if oldest_progress is not None:
            assert oldest_progress[0].num_computed > oldest_progress[1]
        for at, index, num in forks:
            if at == num_steps and index < len(decision.work):
                fork(scheduler, decision.work[index], itertools.islice(ids, num))
        cache.check_integrity()
        for work in decision.work:
            if work.samples:
                work.seq.tokens.append(TokenId(0))
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
        decision = scheduler.decide()
        seen.append({int(work.seq.seq_id): work.num_tokens for work in decision.work})
        perform(decision, cache)
    assert seen == [{1: 3, 2: 5}] + [{1: 1, 2: 7}] * 5


def test_the_newest_gives_way_and_comes_back_first() -> None:
    scheduler, cache = make(4, 4, 16)
    old, new, later = sequence(1, 6, 14), sequence(2, 6, 14), sequence(3, 2, 8)
    for seq in (old, new, later):
        scheduler.add(seq)
    preempted: list[Any] = []
    for _ in range(4):
        scheduler.admit()
        decision = scheduler.decide()
        preempted += decision.preempted
        perform(decision, cache)
    assert preempted == [2]
    assert (new.phase, new.num_computed) == (Phase.WAITING, 0)
    assert [seq.seq_id for seq in scheduler.waiting] == [2, 3]
    assert [seq.seq_id for seq in scheduler.running] == [1]


def test_a_suspended_sequence_gets_nothing_and_loses_its_pages_only_if_it_must() -> None:
    scheduler, cache = make(3, 4, 16)
    old, new = sequence(1, 3, 12), sequence(2, 3, 12)
    scheduler.add(old)
    scheduler.add(new)
    scheduler.admit()
    perform(scheduler.decide(), cache)
    new.suspended = True
    for _ in range(2):
        decision = scheduler.decide()
        assert [work.seq for work in decision.work] == [old]
        perform(decision, cache)
    assert cache.holds(new.seq_id)
    for _ in range(4):
        perform(scheduler.decide(), cache)
    assert not cache.holds(new.seq_id)
    assert new.phase is Phase.WAITING


def test_a_suspended_sequence_takes_no_slot_and_waits_for_none() -> None:
    scheduler, cache = make(16, 1, 16)
    first, second, third = (sequence(seq_id, 3, 9) for seq_id in (1, 2, 3))
    for seq in (first, second, third):
        scheduler.add(seq)
    first.suspended = True
    scheduler.admit()
    assert [work.seq for work in scheduler.decide().work] == [second]
    second.suspended = True
    scheduler.admit()
    assert [work.seq for work in scheduler.decide().work] == [third]
    # More are awake than there are slots: the oldest goes on.
    second.suspended = False
    decision = scheduler.decide()
    assert [work.seq for work in decision.work] == [second]
    assert cache.holds(third.seq_id)


def test_a_suspended_sequence_gives_its_pages_to_one_that_waits() -> None:
    scheduler, cache = make(3, 4, 16)
    old, new = sequence(1, 9, 12), sequence(2, 9, 12)
    scheduler.add(old)
    scheduler.add(new)
    scheduler.admit()
    perform(scheduler.decide(), cache)
    assert [seq.phase for seq in (old, new)] == [Phase.RUNNING, Phase.WAITING]
    old.suspended = True
    scheduler.admit()
    assert [seq.phase for seq in (old, new)] == [Phase.WAITING, Phase.RUNNING]
    assert old.num_computed == 0


def test_one_that_sleeps_gives_its_pages_before_one_that_works() -> None:
    scheduler, cache = make(4, 4, 16)
    old, new = sequence(1, 7, 16), sequence(2, 8, 16)
    for seq in (old, new):
        scheduler.add(seq)
    scheduler.admit()
    perform(scheduler.decide(), cache)
    old.suspended = True
    decision = scheduler.decide()
    assert ([work.seq for work in decision.work], decision.preempted) == ([new], [old.seq_id])


def test_a_fork_that_comes_back_shares_again() -> None:
    scheduler, cache = make(8, 4, 32)
    root, other = sequence(1, 18, 26), sequence(2, 3, 16)
    for seq in (root, other):
        scheduler.add(seq)
    scheduler.admit()
    decision = scheduler.decide()
    compute(decision, cache)
    fork(scheduler, decision.work[0], [3])
    child = scheduler.running[1]
    child.tokens[-1] = TokenId(2)
    for seq, token in ((root, 1), (other, 0)):
        seq.tokens.append(TokenId(token))
    child.suspended = True
    # Of 8 pages, `other` comes to need 4, and the root 5.
    while child.phase is Phase.RUNNING:
        perform(scheduler.decide(), cache)
    assert not cache.holds(child.seq_id)
    scheduler.remove(other)
    child.suspended = False
    scheduler.admit()
    cache.check_integrity()
    # 19 tokens, of which the last is its own.
    assert (child.num_computed, len(child.tokens)) == (18, 19)
    assert cache.page_table(child.seq_id) == cache.page_table(root.seq_id)[:5]
    [_, work] = scheduler.decide().work
    assert (work.num_tokens, work.samples) == (1, True)
    assert cache.page_table(child.seq_id)[:4] == cache.page_table(root.seq_id)[:4]
    assert cache.page_table(child.seq_id)[4] != cache.page_table(root.seq_id)[4]
    cache.check_integrity()


def test_a_late_fork_is_older_than_requests_that_came_after_its_own() -> None:
    scheduler, cache = make(16, 2, 16)
    first, second = sequence(1, 3, 9), sequence(2, 3, 9)
    for seq in (first, second):
        scheduler.add(seq)
    scheduler.admit()
    decision = scheduler.decide()
    compute(decision, cache)
    fork(scheduler, decision.work[0], [3])
    for seq in (first, second):
        seq.tokens.append(TokenId(0))
    cache.check_integrity()
    assert [seq.seq_id for seq in scheduler.running] == [1, 3, 2]
    assert [work.seq.seq_id for work in scheduler.decide().work] == [1, 3]
