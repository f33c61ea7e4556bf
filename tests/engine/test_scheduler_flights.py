"""Plans while earlier steps are in flight, and after the steps and all pages were lost."""

from tests.engine.scheduler_bench import make, perform, sequence


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
