"""The processor time of guests by owner."""

from typing import TYPE_CHECKING

from aici_engine.control.guest_time import GuestTime
from aici_engine.request import Share

if TYPE_CHECKING:
    from collections.abc import Mapping

BOB, ALICE = Share(owner="bob", guest_cpu_s=6.0), Share(owner="alice")


def test_times_are_reported_and_summed() -> None:
    told: list[Mapping[str, float]] = []
    guest_time = GuestTime(lambda: 0.0, told.append)
    guest_time.add({BOB: 1.0, ALICE: 2.0, Share(owner="bob", weight=2): 0.5})
    guest_time.add({})
    assert told == [{"bob": 1.5, "alice": 2.0}]
    assert guest_time.total_s == 3.5


def test_an_overdrawn_budget_slows_and_recovers() -> None:
    now = 0.0
    guest_time = GuestTime(lambda: now)
    guest_time.add({ALICE: 1000.0})
    assert not guest_time.has_budgets
    guest_time.add({BOB: 6.0})
    assert guest_time.has_budgets
    assert not guest_time.is_slowed(BOB)
    guest_time.add({BOB: 1.0})
    assert guest_time.is_slowed(BOB)
    assert not guest_time.is_slowed(ALICE)
    now = 10.5
    assert not guest_time.is_slowed(BOB), "a tenth of a second of processor time comes back in a second"


def test_who_is_slowed_takes_part_in_some_steps() -> None:
    guest_time = GuestTime(lambda: 0.0)
    sits_out = [guest_time.begin_step() for _ in range(80)]
    assert sits_out.count(False) == 10
