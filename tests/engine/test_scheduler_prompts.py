"""Prompts beside decoding sequences, and short prompts beside long ones."""

from aici_engine.prefill_budget import PrefillBudget
from tests.engine.scheduler_bench import make, perform, sequence


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
