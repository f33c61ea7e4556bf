"""One look at the server, twice a second, for all listeners; no look while nobody listens."""

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterator
from typing import Any, Final

from aici_base.errors import RateLimitError, UnauthorizedError
from aici_engine.server.api.server_state import ServerState
from aici_engine.server.gateway import sse
from aici_engine.server.service.admission import Principal
from aici_engine.server.service.models import Models

INTERVAL_S: Final = 0.5
MAX_LISTENERS: Final = 64
MAX_LISTENERS_OF_KEY: Final = 16
MAX_REQUESTS: Final = 100
"""Of the running requests in one event."""
MAX_S: Final = 3600.0
"""A stream ends after an hour, so that a listener who has gone without a word goes at last."""
_SILENCE_S: Final = 15.0
"""After so long without an event, a comment tells proxies that the stream lives."""
_ALIVE: Final = b": alive\n\n"
_RETRY_AFTER_S: Final = 10.0


class StateFeed:
    """Gives each listener the newest state, and skips states for a listener who reads slowly."""

    def __init__(
        self, models: Models, *, interval_s: float = INTERVAL_S, clock: Callable[[], float] = time.time
    ) -> None:
        self._models = models
        self._interval_s = interval_s
        self._clock = clock
        self._listeners: Counter[str] = Counter()
        self._producer: asyncio.Task[None] | None = None
        self._state: dict[str, Any] | None = None
        self._looked = asyncio.Event()

    @property
    def is_looking(self) -> bool:
        """Whether somebody listens."""
        return self._producer is not None

    async def events(self, ask_principal: Callable[[], Principal]) -> AsyncGenerator[bytes, None]:
        """Yield an event at once, and after each look that found a change, until the server drains or `ask_principal`
        raises UnauthorizedError, because the key was revoked. The rights of the key may change in between.

        Raises RateLimitError if too many listen.
        """
        principal = ask_principal()
        with self._listening(principal.name):
            last, silent_s, began = None, 0.0, time.monotonic()
            while time.monotonic() - began < MAX_S:
                state = self._state or await self._next()
                document = state | self._requests(principal)
                if document != last:
                    yield sse.event(self._now() | document)
                    last, silent_s = document, 0.0
                elif silent_s >= _SILENCE_S:
                    yield _ALIVE
                    silent_s = 0.0
                if document["draining"]:
                    return
                silent_s += self._interval_s
                await self._next()
                try:
                    principal = ask_principal()
                except UnauthorizedError:
                    return

    async def state(self, principal: Principal) -> dict[str, Any]:
        """Return the state once. Raises RateLimitError if too many listen."""
        with self._listening(principal.name):
            return self._now() | (self._state or await self._next()) | self._requests(principal)

    def _now(self) -> dict[str, float]:
        return {"time": round(self._clock(), 3)}

    def _requests(self, principal: Principal) -> dict[str, Any]:
        seen = self._models.admission.running.seen_by(principal)
        return {"num_requests": len(seen), "requests": [each.fields() for each in seen[:MAX_REQUESTS]]}

    async def _next(self) -> dict[str, Any]:
        """Wait for the next look. Raises the error of a producer that has failed."""
        looked, producer = self._looked, self._producer
        await looked.wait()
        if producer is not None and producer.done():
            producer.result()
        assert self._state is not None
        return self._state

    @contextlib.contextmanager
    def _listening(self, name: str) -> Iterator[None]:
        if self._listeners.total() >= MAX_LISTENERS or self._listeners[name] >= MAX_LISTENERS_OF_KEY:
            raise RateLimitError("too many listen to the state of this server", retry_after_s=_RETRY_AFTER_S)
        self._listeners[name] += 1
        if self._producer is None:
            self._producer = asyncio.get_running_loop().create_task(self._produce())
            self._producer.add_done_callback(self._ended)
        try:
            yield
        finally:
            self._listeners[name] -= 1
            self._listeners += Counter()  # forgets names without listeners
            if not self._listeners:
                self._producer.cancel()
                self._producer, self._state, self._looked = None, None, asyncio.Event()

    def _ended(self, producer: asyncio.Task[None]) -> None:
        """Wake the listeners of a producer that has failed."""
        if producer is self._producer:
            self._looked.set()

    async def _produce(self) -> None:
        server = ServerState(self._models)
        drained = self._models.admission.drain_begun
        try:
            while True:
                self._state = await server.look()
                looked, self._looked = self._looked, asyncio.Event()
                looked.set()
                with contextlib.suppress(TimeoutError):
                    # asyncio.wait_for would lose a cancellation that comes with the event.
                    async with asyncio.timeout(self._interval_s):
                        await (asyncio.Event() if self._state["draining"] else drained).wait()
        finally:
            await server.close()
