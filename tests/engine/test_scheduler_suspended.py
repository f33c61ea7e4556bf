"""Suspended sequences: they take no place, and their pages go first."""

from aici_engine.sequences.progress import Phase
from tests.engine.scheduler_bench import make, perform, sequence


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
