"""The prefill budget learned from the times of steps."""

import pytest

from aici_engine.prefill_budget import LEAST, PrefillBudget


def warm(slowdown: float) -> PrefillBudget:
    prefill_budget = PrefillBudget(slowdown)
    prefill_budget.record_step(100.0, num_decodes=0, num_others=1)
    return prefill_budget


def test_as_many_tokens_as_fit_in_the_time() -> None:
    prefill_budget = warm(4.0)
    assert prefill_budget.max_prompt_tokens(0) is None
    prefill_budget.record_step(0.51, num_decodes=0, num_others=500)
    assert prefill_budget.max_prompt_tokens(1) == 0
    prefill_budget.record_step(0.01, num_decodes=1, num_others=0)
    assert prefill_budget.max_prompt_tokens(1) == 29  # the cost of the step itself was counted with the tokens
    prefill_budget.record_step(0.04, num_decodes=1, num_others=30)
    assert prefill_budget.max_prompt_tokens(1) in (29, 30)


def test_a_step_of_prompts_alone_is_not_long_either() -> None:
    prefill_budget = warm(4.0)
    for time_s in (1.4, 1.1, 1.2):
        prefill_budget.record_step(time_s, num_decodes=0, num_others=500)
        assert prefill_budget.max_prompt_tokens(0) == 128  # 250 would take half a second
    for _ in range(100):
        prefill_budget.record_step(30.0, num_decodes=0, num_others=500)
    assert prefill_budget.max_prompt_tokens(0) == LEAST


def test_each_size_of_batch_is_tried_once_whoever_measures_it() -> None:
    prefill_budget = warm(4.0)
    assert [prefill_budget.max_prompt_tokens(num) for num in (1, 1, 2, 3, 4)] == [0, None, 0, None, 0]
    prefill_budget.record_step(0.02, num_decodes=16, num_others=0)
    prefill_budget.record_step(0.1, num_decodes=0, num_others=100)
    assert prefill_budget.max_prompt_tokens(31) == 60


@pytest.mark.parametrize("slowdown", [1.0, 1.001])
def test_a_prompt_goes_on_whatever_it_costs(slowdown: float) -> None:
    prefill_budget = warm(slowdown)
    prefill_budget.record_step(0.01, num_decodes=1, num_others=0)
    prefill_budget.record_step(5.0, num_decodes=0, num_others=100)
    assert prefill_budget.max_prompt_tokens(1) == LEAST


def test_a_busy_neighbour_changes_little() -> None:
    prefill_budget = warm(4.0)
    for time_s in [0.01] * 10 + [1.0]:
        prefill_budget.record_step(time_s, num_decodes=1, num_others=0)
    prefill_budget.record_step(0.11, num_decodes=0, num_others=100)
    assert prefill_budget.max_prompt_tokens(1) == 33
