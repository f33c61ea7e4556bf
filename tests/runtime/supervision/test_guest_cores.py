"""The cores for guests, as the stepper chooses them."""

import os
from collections.abc import Iterator

import pytest

from aici_runtime.supervision.guest_cores import GuestCores


@pytest.fixture
def cores() -> Iterator[set[int]]:
    before = os.sched_getaffinity(0)
    yield before
    os.sched_setaffinity(0, before)


def test_all_cores_but_that_of_the_engine(cores: set[int]) -> None:
    guests = GuestCores()
    assert guests.cores is None
    first, last = min(cores), max(cores)
    guests.learn(first)
    if len(cores) == 1:
        assert guests.cores is None
        return
    assert guests.cores == cores - {first}
    assert os.sched_getaffinity(0) == cores - {first}
    guests.learn(last)
    assert guests.cores == cores - {first}, "guests do not follow at once"
    guests._learned_at -= 2.0
    guests.learn(last)
    assert guests.cores == cores - {last}
    assert os.sched_getaffinity(0) == cores - {last}


def test_an_engine_elsewhere_and_a_single_core(cores: set[int]) -> None:
    only = min(cores)
    os.sched_setaffinity(0, {only})
    guests = GuestCores()
    guests.learn(only)
    assert guests.cores is None
    guests.learn(only + 1)
    assert guests.cores == {only}
