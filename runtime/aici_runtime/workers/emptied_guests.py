"""Instances of guests that have left a pool, for its next guests.

Making an instance is half of the work when a guest starts from an image. So the instance of a guest that has left is
emptied, and serves a next guest, which starts from a snapshot or an image. These hold the whole state of a guest: a
pool's module has no other (`guests/movable.py`).
"""

from collections import deque

from aici_runtime.guests.guest import Guest
from aici_runtime.memory.worker_slots import POOL_EMPTIED_MAX


class EmptiedGuests:
    """At most `POOL_EMPTIED_MAX` instances. One thread puts instances in; any thread may take them."""

    def __init__(self) -> None:
        self._guests: deque[Guest] = deque()

    def put(self, guest: Guest) -> None:
        """Empty the instance of a guest that has left, and keep it. Close the instance instead if it is of no further
        use, or if enough are kept."""
        if len(self._guests) < POOL_EMPTIED_MAX and guest.empty():
            self._guests.append(guest)
        else:
            guest.close()

    def take(self) -> Guest | None:
        """Return an emptied instance; None if there is none."""
        try:
            return self._guests.pop()
        except IndexError:
            return None
