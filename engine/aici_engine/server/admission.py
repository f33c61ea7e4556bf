"""Who may start how many sequences: the queue's bound, and what else keeps a server from drowning."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

from aici_engine.server.errors import OverloadedError
from aici_runtime.errors import UnavailableError, UsageError

_RETRY_AFTER_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """Who asks, by the key that was shown. `max_concurrency`: sequences at a time; None: no bound of its own."""

    name: str = "localhost"
    is_admin: bool = True
    may_upload: bool = True
    controllers: frozenset[str] | None = None
    max_concurrency: int | None = None


class Admission:
    """Counts sequences, of which `capacity` run or wait; more are refused, never lost."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.num_admitted = 0
        self.draining = False
        self._by_name: dict[str, int] = {}

    @contextlib.contextmanager
    def admit(self, who: Principal, num_sequences: int) -> Iterator[None]:
        """All of them or OverloadedError. They count until the context ends."""
        if self.draining:
            raise UnavailableError("the server is stopping", hint="try another one")
        if num_sequences > self.capacity:
            raise UsageError(f"{num_sequences} sequences in one request: this server takes {self.capacity}")
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
