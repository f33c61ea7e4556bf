"""The wait for guests before an idle vLLM begins a step."""

import pytest

from aici_engine.vllm.gathering import Gathering


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_the_wait_is_at_most_a_step_and_ends_for_good() -> None:
    clock = Clock()
    gathering = Gathering(clock)
    assert gathering.remaining_s(is_useful=True, step_s=0.02) == pytest.approx(0.02)
    clock.now += 0.015
    assert gathering.remaining_s(is_useful=True, step_s=0.02) == pytest.approx(0.005)
    clock.now += 0.015
    assert gathering.remaining_s(is_useful=True, step_s=0.02) == 0.0
    clock.now += 1.0
    assert gathering.remaining_s(is_useful=True, step_s=0.02) == 0.0


def test_a_wait_begins_anew_after_a_step() -> None:
    clock = Clock()
    gathering = Gathering(clock)
    assert gathering.remaining_s(is_useful=True, step_s=0.02) > 0.0
    clock.now += 0.03
    assert gathering.remaining_s(is_useful=False, step_s=0.02) == 0.0
    assert gathering.remaining_s(is_useful=True, step_s=0.02) == pytest.approx(0.02)


def test_the_wait_has_a_bound_after_a_long_step() -> None:
    assert Gathering(Clock()).remaining_s(is_useful=True, step_s=60.0) < 0.1
