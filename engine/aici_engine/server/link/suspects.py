"""Requests that may kill engines: requests in the engine at several of its last deaths.

A request that has begun to answer a client is not sent to the next engine, but the client may send the request again.
Without a bound, such a client kills one engine after the other, and with each the requests of everybody.
"""

import hashlib
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

import msgspec

from aici_base.errors import UnavailableError
from aici_engine.server.link import wire

_NUM_DEATHS: Final = 5
_MANY: Final = 3
_FORGET_S: Final = 600.0


class _Death(NamedTuple):
    at: float
    requests: set[bytes]


class Suspects:
    """Refuses a request that was in `_MANY` of the last `_NUM_DEATHS` engines when they died, until the deaths are
    `_FORGET_S` seconds old.

    Requests are the same if everything is the same that the engine is asked, the client's key included. A request that
    ends well is no suspect: many clients may send the same request all the time, and be in every engine that dies.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._deaths: deque[_Death] = deque(maxlen=_NUM_DEATHS)

    @property
    def are_some(self) -> bool:
        """Whether an engine has died."""
        return bool(self._deaths)

    def note_death(self, digests: Iterable[bytes]) -> None:
        """Record that an engine has died with the requests of these digests."""
        self._deaths.append(_Death(self._clock(), set(digests)))

    def note_success(self, digest: bytes) -> None:
        """Record that an engine has computed the request of this digest to its end."""
        for death in self._deaths:
            death.requests.discard(digest)

    def check(self, request: wire.Submit) -> None:
        """Raise UnavailableError for a suspect."""
        while self._deaths and self._clock() - self._deaths[0].at > _FORGET_S:
            self._deaths.popleft()
        if len(self._deaths) < _MANY:
            return
        wanted = digest(request)
        if wanted and sum(wanted in death.requests for death in self._deaths) >= _MANY:
            raise UnavailableError(
                f"engines have died while they computed this request, {_MANY} of the last {len(self._deaths)}:"
                " it is not computed again now",
                hint=f"change the request, or send it again in {_FORGET_S / 60:.0f} minutes",
            )


def digest(request: wire.Submit) -> bytes:
    """Return the same bytes for the same request; empty for a request that cannot be sent to an engine."""
    asked = msgspec.structs.replace(request, stream=0)
    try:
        return hashlib.blake2b(wire.encode([asked]), digest_size=16).digest()
    except (ValueError, OverflowError, RecursionError):
        return b""
