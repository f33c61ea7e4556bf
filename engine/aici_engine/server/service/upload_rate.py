"""How many modules the holder of an API key may upload in an hour."""

import time
from collections.abc import Callable
from typing import Final

from aici_base.errors import RateLimitError
from aici_engine.server.service.admission import Principal

_HOUR_S: Final = 3600.0


class UploadRate:
    """A token bucket for each key: a full bucket holds the uploads of an hour, and time refills it."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._buckets: dict[str, tuple[float, float]] = {}

    def count(self, principal: Principal) -> None:
        """Count an upload. Raises RateLimitError if the key has used up its uploads of this hour."""
        limit = principal.uploads_per_hour
        if limit is None:
            return
        now = self._clock()
        left, since = self._buckets.get(principal.name, (float(limit), now))
        left = min(limit, left + (now - since) * limit / _HOUR_S)
        if left < 1:
            raise RateLimitError(
                f"the key {principal.name} may upload {limit} controllers an hour",
                hint="wait, or upload fewer controllers; the administrator can raise `uploads_per_hour`",
                retry_after_s=(1 - left) * _HOUR_S / limit,
            )
        self._buckets[principal.name] = left - 1, now
