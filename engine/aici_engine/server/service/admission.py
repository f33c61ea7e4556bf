"""Who may start how much: the queue's bound, the limits of a key, and what else keeps a server from drowning."""

import asyncio
import contextlib
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from aici_base.errors import ForbiddenError, UnavailableError, UsageError
from aici_engine.server.errors import OverloadedError

_RETRY_AFTER_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """Who asks, by the key that was shown. None: no bound of its own; `max_concurrency` counts sequences."""

    name: str = "localhost"
    is_admin: bool = True
    may_upload: bool = True
    controllers: tuple[re.Pattern[str], ...] | None = None
    requests_per_minute: int | None = None
    max_concurrency: int | None = None

    def check_controller(self, name: str) -> None:
        """`name`: a tag or module id, as the request gives it. Raises ForbiddenError."""
        if self.controllers is not None and not any(pattern.fullmatch(name) for pattern in self.controllers):
            raise ForbiddenError(f"the key {self.name} may not use the controller {name}")

    def check_upload(self) -> None:
        """Also of tags. Raises ForbiddenError."""
        if not self.may_upload:
            raise ForbiddenError(f"the key {self.name} may not upload controllers or set tags")


@dataclass(slots=True)
class _Bucket:
    """`tokens` at the time `at`: a request takes one; they come back with time."""

    tokens: float
    at: float


class Admission:
    """Counts sequences, of which `capacity` run or wait; more are refused, never lost."""

    def __init__(self, capacity: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.capacity = capacity
        self.num_admitted = 0
        self.drain_begun = asyncio.Event()
        self._clock = clock
        self._by_name: dict[str, int] = {}
        self._buckets: dict[str, _Bucket] = {}

    def count(self, who: Principal) -> None:
        """One request more. OverloadedError when the key has had its number for this minute."""
        limit = who.requests_per_minute
        if limit is None:
            return
        now = self._clock()
        bucket = self._buckets.setdefault(who.name, _Bucket(limit, now))
        bucket.tokens = min(limit, bucket.tokens + (now - bucket.at) * limit / 60)
        bucket.at = now
        if bucket.tokens < 1:
            raise OverloadedError(
                f"the key {who.name} may send {limit} requests a minute",
                retry_after_s=(1 - bucket.tokens) * 60 / limit,
            )
        bucket.tokens -= 1

    @property
    def draining(self) -> bool:
        """Nobody is admitted any more."""
        return self.drain_begun.is_set()

    @contextlib.contextmanager
    def admit(self, who: Principal, num_sequences: int) -> Iterator[None]:
        """All of them or OverloadedError. They count until the context ends."""
        if self.draining:
            raise UnavailableError("the server is stopping", hint="try another one")
        if num_sequences > self.capacity:
            raise UsageError(f"{num_sequences} sequences in one request: this server takes {self.capacity}")
        if who.max_concurrency is not None and num_sequences > who.max_concurrency:
            raise UsageError(f"{num_sequences} sequences in one request: the key {who.name} has {who.max_concurrency}")
        if self.num_admitted + num_sequences > self.capacity:
            raise OverloadedError(
                f"{self.num_admitted} sequences run or wait: the queue is full", retry_after_s=_RETRY_AFTER_S
            )
        mine = self._by_name.get(who.name, 0) + num_sequences
        if who.max_concurrency is not None and mine > who.max_concurrency:
            raise OverloadedError(
                f"the key {who.name} may have {who.max_concurrency} sequences at a time", retry_after_s=_RETRY_AFTER_S
            )
        self.num_admitted += num_sequences
        self._by_name[who.name] = mine
        try:
            yield
        finally:
            self.num_admitted -= num_sequences
            left = self._by_name[who.name] - num_sequences
            if left:
                self._by_name[who.name] = left
            else:
                del self._by_name[who.name]
