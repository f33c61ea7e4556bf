"""Instances of guests that have left a pool."""

from typing import Any, cast

from aici_runtime.workers.emptied_guests import EmptiedGuests


class FakeGuest:
    def __init__(self, *, may_stay: bool = True) -> None:
        self.may_stay = may_stay
        self.is_closed = False

    def empty(self) -> bool:
        return self.may_stay

    def close(self) -> None:
        self.is_closed = True


def put(emptied: EmptiedGuests, guest: FakeGuest) -> FakeGuest:
    emptied.put(cast("Any", guest))
    return guest


def test_an_instance_is_given_once() -> None:
    emptied = EmptiedGuests()
    assert emptied.take() is None
    guest = put(emptied, FakeGuest())
    assert cast("Any", emptied.take()) is guest
    assert emptied.take() is None
    assert not guest.is_closed


def test_what_cannot_be_emptied_is_closed() -> None:
    emptied = EmptiedGuests()
    assert put(emptied, FakeGuest(may_stay=False)).is_closed
    assert emptied.take() is None


def test_few_are_kept() -> None:
    emptied = EmptiedGuests()
    guests = [put(emptied, FakeGuest()) for _ in range(40)]
    kept = []
    while (guest := emptied.take()) is not None:
        kept.append(cast("Any", guest))
    assert 0 < len(kept) < 40
    assert [guest.is_closed for guest in guests] == [guest not in kept for guest in guests]
