"""How long steps wait for guests."""

from types import SimpleNamespace
from typing import Any

import pytest

from aici_engine.control.guest_patience import GuestPatience
from aici_engine.request import ControllerCall, Share


def sequence(seq_id: int, owner: str, module: str | None = None, *, suspended: bool = False) -> Any:
    controller = None if module is None else ControllerCall(module)
    guest = SimpleNamespace(suspended=suspended)
    share = Share(owner=owner)
    return SimpleNamespace(seq_id=seq_id, share=share, controller=controller, guest=guest, kind=(owner, module))


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def hurried(patience: GuestPatience, *seqs: Any) -> list[int]:
    limits = patience.limits(seqs, 0.006)
    return [] if limits is None else list(limits.hurried)


VICTIM, EVE, SAME = sequence(1, "victim"), sequence(2, "eve", "spin"), sequence(3, "eve", "spin")


def test_one_kind_of_sequences_waits_for_its_guests() -> None:
    patience = GuestPatience(Clock())
    patience.begin_step([EVE, SAME])
    assert patience.limits([EVE, SAME], 0.006) is None
    patience.begin_step([EVE, sequence(4, "victim", suspended=True)])
    assert patience.limits([EVE], 0.006) is None
    patience.begin_step([])
    assert patience.limits([EVE]) is None


def test_several_kinds_wait_for_a_while() -> None:
    patience = GuestPatience(Clock())
    patience.begin_step([VICTIM, EVE])
    limits = patience.limits([EVE], 0.006)
    assert limits is not None
    assert 0.006 < limits.most_s < 0.05
    assert limits.hurried_s == 0.006
    assert not limits.hurried
    nearly_over = patience.limits([EVE], 0.0001)
    assert nearly_over is not None
    assert nearly_over.hurried_s == 0.001


def test_late_guests_are_not_waited_for_while_others_work() -> None:
    """The guest that the turn asks is suspended, so only others have work."""
    patience = GuestPatience(Clock())
    patience.begin_step([VICTIM, sequence(2, "eve", "spin", suspended=True)])
    assert patience.limits([EVE]) is not None


def test_lateness_is_remembered_and_forgotten() -> None:
    clock = Clock()
    patience = GuestPatience(clock)
    patience.begin_step([VICTIM, EVE])
    patience.charge(EVE, 0.031)
    assert hurried(patience, EVE) == [2]
    assert hurried(patience, sequence(9, "eve", "spin")) == [9], "a new request does not begin anew"
    assert hurried(patience, sequence(9, "eve", "other")) == [], "another module of the owner has its own account"
    assert hurried(patience, sequence(9, "bob", "spin")) == [], "so has another owner"
    clock.now += 1.1
    assert hurried(patience, EVE) == []


def test_many_modules_of_an_owner_gain_little() -> None:
    patience = GuestPatience(Clock())
    patience.begin_step([VICTIM, EVE])
    for number in range(4):
        patience.charge(sequence(number, "eve", f"module {number}"), 0.031)
    assert hurried(patience, sequence(9, "eve", "module 9")) == [9]
    assert hurried(patience, sequence(9, "bob", "module 9")) == []


def test_hurry_doubles_and_ends() -> None:
    clock = Clock()
    patience = GuestPatience(clock)
    patience.begin_step([VICTIM, EVE])
    lasted = []
    for _ in range(9):
        began = clock.now
        patience.charge(EVE, 0.031)
        while hurried(patience, EVE):
            clock.now += 0.5
        lasted.append(clock.now - began)
    assert lasted[:3] == [pytest.approx(1, abs=0.5), pytest.approx(2, abs=0.5), pytest.approx(4, abs=0.5)]
    assert max(lasted) <= 61
    clock.now += 100
    patience.charge(EVE, 0.031)
    clock.now += 1.1
    assert hurried(patience, EVE) == [], "after a good while, the first hurry is short again"


def test_short_waits_are_forgiven() -> None:
    """2 ms a second, for ever."""
    clock = Clock()
    patience = GuestPatience(clock)
    patience.begin_step([VICTIM, EVE])
    for _ in range(1000):
        clock.now += 1
        patience.charge(EVE, 0.002)
        assert hurried(patience, EVE) == []


def test_the_number_of_accounts_is_bounded() -> None:
    clock = Clock()
    patience = GuestPatience(clock)
    for number in range(20_000):
        clock.now += 0.001
        patience.charge(sequence(number, f"owner {number}", "m"), 0.031)
    assert len(patience._accounts) <= 4096
