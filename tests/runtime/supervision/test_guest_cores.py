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


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core")
def test_calm_guests_keep_off_the_core_of_the_engine(cores: set[int]) -> None:
    guests = GuestCores()
    first, last = min(cores), max(cores)
    guests.calm(first, 10)
    assert guests.cores == os.sched_getaffinity(0) == cores - {first}
    guests.calm(last, 10)
    assert guests.cores == os.sched_getaffinity(0) == cores - {last}
    guests.lift()
    assert guests.cores == os.sched_getaffinity(0) == cores
    guests.calm(last, 6000)
    assert guests.cores == cores, "guests compute for long"


def test_an_engine_elsewhere_and_a_single_core(cores: set[int]) -> None:
    only = min(cores)
    os.sched_setaffinity(0, {only})
    guests = GuestCores()
    for core in (only, only + 1):
        guests.calm(core, 10)
        assert guests.cores is None
        assert os.sched_getaffinity(0) == {only}
