"""Sequences that begin alike, forks too, compute the beginning once and share its pages."""

from aici_base.ids import TokenId
from aici_engine.sequences.progress import Phase
from tests.engine.scheduler_bench import compute, fork, make, perform, sequence


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
