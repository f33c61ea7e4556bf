"""Instances of guests that have left a pool, for its next guests.

To empty an instance is much faster than to make one, which is most of what a guest costs that starts from an image.
The next guest in an emptied instance starts from a snapshot or an image of the pool's module: these say all that a
guest remembers (`guests/movable.py`).
"""

from collections import deque

from aici_runtime.guests.guest import Guest
from aici_runtime.memory.worker_slots import POOL_EMPTIED_MAX


class EmptiedGuests:
    """Safe from any thread."""

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
