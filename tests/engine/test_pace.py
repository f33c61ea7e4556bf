"""What is learned from the times of steps."""

import pytest

from aici_engine.pace import LEAST, Pace


def warm(slowdown: float) -> Pace:
    pace = Pace(slowdown)
    pace.took(100.0, num_decodes=0, num_others=1)
    return pace


def test_as_many_tokens_as_fit_in_the_time() -> None:
    pace = warm(4.0)
    assert pace.most_tokens(0) is None
    pace.took(0.51, num_decodes=0, num_others=500)
    assert pace.most_tokens(1) == 0
    pace.took(0.01, num_decodes=1, num_others=0)
    assert pace.most_tokens(1) == 29  # what the step itself costs was counted with the tokens
    pace.took(0.04, num_decodes=1, num_others=30)
    assert pace.most_tokens(1) in (29, 30)


def test_a_step_of_prompts_alone_is_not_long_either() -> None:
    pace = warm(4.0)
    for time_s in (1.4, 1.1, 1.2):
        pace.took(time_s, num_decodes=0, num_others=500)
        assert pace.most_tokens(0) == 128  # 250 would take half a second
    for _ in range(100):
        pace.took(30.0, num_decodes=0, num_others=500)
    assert pace.most_tokens(0) == LEAST


def test_each_size_of_batch_is_tried_once_whoever_measures_it() -> None:
    pace = warm(4.0)
    assert [pace.most_tokens(num) for num in (1, 1, 2, 3, 4)] == [0, None, 0, None, 0]
    pace.took(0.02, num_decodes=16, num_others=0)
    pace.took(0.1, num_decodes=0, num_others=100)
    assert pace.most_tokens(31) == 60


@pytest.mark.parametrize("slowdown", [1.0, 1.001])
def test_a_prompt_goes_on_whatever_it_costs(slowdown: float) -> None:
    pace = warm(slowdown)
    pace.took(0.01, num_decodes=1, num_others=0)
    pace.took(5.0, num_decodes=0, num_others=100)
    assert pace.most_tokens(1) == LEAST


def test_a_busy_neighbour_changes_little() -> None:
    pace = warm(4.0)
    for time_s in [0.01] * 10 + [1.0]:
        pace.took(time_s, num_decodes=1, num_others=0)
    pace.took(0.11, num_decodes=0, num_others=100)
    assert pace.most_tokens(1) == 33
