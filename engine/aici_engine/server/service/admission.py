"""Admission: the bound of the queue, and the rights and limits of every API key."""

import asyncio
import contextlib
import re
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

from aici_base.errors import ForbiddenError, RateLimitError, UnavailableError, UsageError
from aici_controllers.store import MODULES, STORED_MIB
from aici_engine.request import Share
from aici_engine.server.link import wire
from aici_engine.server.service.budgets import Budgets
from aici_engine.server.service.key_counts import KeyCounts, LocalCounts
from aici_engine.server.service.running_requests import RunningRequests
from aici_runtime.channels.envelope import Auth
from aici_runtime.modules.room import StorageLimits

_RETRY_AFTER_S = 1.0
DEFAULT_STORAGE: Final = StorageLimits(modules=MODULES.per_user, stored_mib=STORED_MIB.per_user)

Watch: TypeAlias = Callable[[wire.StreamOut], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """The holder of an API key, with rights and limits. None means no limit. `max_concurrency` counts sequences; forks
    above it wait.

    `has_key`: the server has keys, and this is one of them. `has_own_controllers`: other keys do not see the key's
    uploaded controllers, unless shared. `storage`: of uploaded controllers.
    `controllers`: patterns of the allowed controller names. `weight`: the key's share of the engine, beside keys with
    weight 1. `min_priority`: the soonest priority allowed. `tokens_per_minute` counts prompts and answers,
    `guest_cpu_per_minute` seconds of processor time of controllers. `cache_pages`: the most pages for sequences of the
    key. `is_background`: for the lines of batches, which take no place in the queue, have no time limit, and are
    computed when nothing else is.
    """

    name: str = "localhost"
    has_key: bool = False
    is_admin: bool = True
    may_upload: bool = True
    has_own_controllers: bool = False
    uploads_per_hour: int | None = None
    storage: StorageLimits = DEFAULT_STORAGE
    may_template: bool = True
    controllers: tuple[re.Pattern[str], ...] | None = None
    requests_per_minute: int | None = None
    max_concurrency: int | None = None
    weight: int = 1
    min_priority: int | None = None
    tokens_per_minute: int | None = None
    guest_cpu_per_minute: float | None = None
    cache_pages: int | None = None
    is_background: bool = False

    @property
    def auth(self) -> Auth:
        """The user whom the store of controllers sees."""
        return Auth(self.name, is_admin=self.is_admin)

    @property
    def share(self) -> Share:
        """The share of the engine's work."""
        return Share(
            owner=self.name,
            weight=self.weight,
            most=self.max_concurrency,
            guest_cpu_s=self.guest_cpu_per_minute,
            pages=self.cache_pages,
        )

    @property
    def budgets(self) -> dict[str, float | None]:
        """What the key may use in a minute."""
        return {"tokens_per_minute": self.tokens_per_minute, "guest_cpu_per_minute": self.guest_cpu_per_minute}

    def check_priority(self, priority: int) -> None:
        """Raise ForbiddenError if the key may not ask for `priority`."""
        if self.min_priority is not None and priority < self.min_priority:
            raise ForbiddenError(
                f"the key {self.name} may not ask for priority {priority}",
                hint=f"ask for {self.min_priority} or more; the administrator can lower `min_priority`",
            )

    def check_controller(self, name: str) -> None:
        """Raise ForbiddenError if the key may not use the controller `name`: a tag or module id, as in the request."""
        if self.controllers is not None and not any(pattern.fullmatch(name) for pattern in self.controllers):
            raise ForbiddenError(f"the key {self.name} may not use the controller {name}")

    def check_template(self) -> None:
        """Raise ForbiddenError if the key may not send chat templates of its own: a template may compute for long."""
        if not self.may_template:
            raise ForbiddenError(
                f"the key {self.name} may not send a chat_template", hint="the administrator can allow `templates`"
            )

    def check_upload(self) -> None:
        """Raise ForbiddenError if the key may not upload controllers or set tags."""
        if not self.may_upload:
            raise ForbiddenError(f"the key {self.name} may not upload controllers or set tags")


class Admission:
    """Counts admitted sequences of one model. At most `capacity` run or wait; further sequences are refused.

    A sixteenth of the capacity is kept for administrators, so that a full queue does not shut them out.
    `counts`: of the keys; default: counts of this process alone, by `clock`.
    """

    def __init__(
        self, capacity: int, *, clock: Callable[[], float] = time.monotonic, counts: KeyCounts | None = None
    ) -> None:
        self.capacity = capacity
        self.num_admitted = 0
        self.drain_begun = asyncio.Event()
        self._counts = counts or LocalCounts(clock)
        self.budgets = Budgets(self._counts)
        self.running = RunningRequests()

    def beside(self, capacity: int) -> "Admission":
        """Return the admission of a further model: a queue of its own, and the same counts of the keys and running
        requests."""
        other = Admission(capacity, counts=self._counts)
        other.drain_begun, other.budgets, other.running = self.drain_begun, self.budgets, self.running
        return other

    async def count(self, principal: Principal) -> None:
        """Count a request. Raises RateLimitError if the key has used up its requests of this minute."""
        limit = principal.requests_per_minute
        if limit is None:
            return
        with _pardoned(principal):
            [bucket] = (await self._counts.take(principal.name, {"requests_per_minute": limit}, 1)).values()
            if bucket.left < 1:
                raise RateLimitError(
                    f"the key {principal.name} may send {limit} requests a minute", retry_after_s=bucket.wait_s(1)
                )

    def counting(self, principal: Principal, watch: Watch) -> Watch:
        """Return `watch`, which also counts the tokens of the key."""
        spend, name = self.budgets.spend_tokens, principal.name

        def counted(event: wire.StreamOut) -> None:
            inner = event.event if isinstance(event, wire.ForkOut) else event
            if isinstance(inner, wire.TokenOut):
                spend(name, 1)
            watch(event)

        return counted

    @property
    def draining(self) -> bool:
        """The server is stopping: nothing is admitted any more."""
        return self.drain_begun.is_set()

    @contextlib.asynccontextmanager
    async def admit(self, principal: Principal, num_sequences: int) -> AsyncIterator[None]:
        """Admit all sequences until the context ends.

        Raises RateLimitError if the queue or the key is full now, UsageError if the sequences can never fit, and
        UnavailableError while the server is stopping, or if the counts that servers share cannot be used. The last does
        not concern administrators.
        """
        if self.draining:
            raise UnavailableError("the server is stopping", hint="use another server, or try again later")
        capacity = self.capacity if principal.is_admin else self.capacity - self.capacity // 16
        if num_sequences > capacity:
            raise UsageError(f"the request needs {num_sequences} sequences: this server takes {capacity}")
        if principal.max_concurrency is not None and num_sequences > principal.max_concurrency:
            raise UsageError(
                f"the request needs {num_sequences} sequences: the key {principal.name} may have"
                f" {principal.max_concurrency}"
            )
        with _pardoned(principal):
            await self.budgets.check(principal.name, principal.budgets)
        if principal.is_background:
            yield
            return
        if self.num_admitted + num_sequences > capacity:
            raise RateLimitError(
                f"{self.num_admitted} sequences run or wait: the queue is full", retry_after_s=_RETRY_AFTER_S
            )
        self.num_admitted += num_sequences
        try:
            await self._enter(principal, num_sequences)
            try:
                yield
            finally:
                self._counts.leave(principal.name, num_sequences)
        finally:
            self.num_admitted -= num_sequences

    async def _enter(self, principal: Principal, num_sequences: int) -> None:
        has_entered = False
        with _pardoned(principal):
            if not await self._counts.enter(principal.name, num_sequences, principal.max_concurrency):
                raise RateLimitError(
                    f"the key {principal.name} may have {principal.max_concurrency} sequences at a time",
                    retry_after_s=_RETRY_AFTER_S,
                )
            has_entered = True
        if not has_entered:
            await self._counts.enter(principal.name, num_sequences, None)


def _pardoned(principal: Principal) -> contextlib.AbstractContextManager[None]:
    """Let an administrator pass where the counts cannot be used."""
    return contextlib.suppress(UnavailableError) if principal.is_admin else contextlib.nullcontext()
