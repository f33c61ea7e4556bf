"""A replica of a model: the life of an engine process, from the start to the drain."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Coroutine, Iterator
from enum import StrEnum
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

from aici_base.errors import AiciError
from aici_engine.server.fleet.cores import CoreShare
from aici_engine.server.fleet.routing import ReplicaLoad
from aici_engine.server.link.client import EngineClient

STATS_S: Final = 0.8


class ReplicaState(StrEnum):
    """STANDBY: no engine until the load asks for one. STARTING: the engine is loading. UP: the replica takes requests.
    HANGING: the engine makes no progress, and is replaced soon. RESTARTING: the engine has died, and a new one is
    starting. DRAINING: no new requests; the engine ends after the last request. DRAINED: no engine, until the replica
    rejoins. FAILED: the engine keeps dying; the next attempt is in a minute."""

    STANDBY = "standby"
    STARTING = "starting"
    UP = "up"
    HANGING = "hanging"
    RESTARTING = "restarting"
    DRAINING = "draining"
    DRAINED = "drained"
    FAILED = "failed"


WITHOUT_ENGINE: Final = frozenset({ReplicaState.STANDBY, ReplicaState.DRAINED, ReplicaState.FAILED})
SICK: Final = frozenset({ReplicaState.HANGING, ReplicaState.RESTARTING, ReplicaState.FAILED})


class ReplicaEngine(Protocol):
    """The engine process of a replica: a `Supervisor`. `failed` is set if the engine keeps dying. `node`: the name of
    the machine; empty on this machine."""

    failed: asyncio.Event
    node: str

    async def __aenter__(self) -> object: ...

    async def __aexit__(self, *exc: object) -> None: ...


EngineFactory: TypeAlias = Callable[[int, CoreShare, EngineClient], ReplicaEngine]
"""Makes the engine of a replica, by number, not started."""


class ReplicaStatus(NamedTuple):
    """A replica as operators see it. `num_open`: sequences that wait or run. `num_waiting`: sequences without a part of
    an answer. `prompt_tokens`: of all requests so far. `expected_tokens`: the tokens expected in the cache. `node`: the
    machine; empty for this machine, and for a replica that waits for a machine.
    """

    replica: int
    state: ReplicaState
    cpus: tuple[int, ...]
    num_threads: int
    num_open: int
    num_waiting: int
    oldest_wait_s: float
    num_restarts: int
    num_requests: int
    prompt_tokens: int
    expected_tokens: int
    node: str = ""


class Replica:
    """Owns the engine process of a replica. Every life of the replica has a new `client`, and `prepare` is called with
    the client before the engine starts.
    """

    def __init__(self, number: int, share: CoreShare, make: EngineFactory, numbers: Iterator[int]) -> None:
        self.number = number
        self.share = share
        self._make = make
        self._numbers = numbers
        self._engine: ReplicaEngine | None = None
        self._state = ReplicaState.STANDBY
        self._past_restarts = 0
        self.num_requests = self.prompt_tokens = self.expected_tokens = 0
        self.prepare: Callable[[EngineClient], None] = lambda _: None
        self.client = EngineClient(numbers)

    @property
    def state(self) -> ReplicaState:
        if self._state is not ReplicaState.UP:
            return self._state
        if self.client.is_hanging:
            return ReplicaState.HANGING
        return ReplicaState.UP if self.client.is_ready else ReplicaState.RESTARTING

    @property
    def num_restarts(self) -> int:
        return self._past_restarts + (self.client.num_restarts if self._engine is not None else 0)

    @property
    def failed(self) -> asyncio.Event:
        assert self._engine is not None
        return self._engine.failed

    @property
    def oldest_wait_s(self) -> float:
        waiting = self.client.waiting
        return time.monotonic() - waiting[0].opened_s if waiting else 0.0

    def begin_start(self) -> None:
        """Take the state STARTING, before `start` has a turn."""
        self._state = ReplicaState.STARTING

    async def start(self) -> None:
        """Start the engine and wait until the engine is ready. Raises the error of an engine that does not start."""
        self.begin_start()
        self.client = EngineClient(self._numbers)
        self.prepare(self.client)
        engine = self._make(self.number, self.share, self.client)
        try:
            await engine.__aenter__()
        except BaseException:
            self._state = ReplicaState.FAILED
            raise
        self._engine = engine
        self._state = ReplicaState.UP
        self.client.changed()

    def begin_drain(self) -> None:
        """Take no new requests."""
        self._state = ReplicaState.DRAINING

    def end_drain(self) -> None:
        """Take requests again: the engine has not ended yet."""
        self._state = ReplicaState.UP

    def stop(self, state: ReplicaState) -> Coroutine[Any, Any, None]:
        """Take the state `state` at once. The returned coroutine ends the engine; streams that still run fail, or move
        to other replicas."""
        self._past_restarts = self.num_restarts
        engine, self._engine = self._engine, None
        self._state = state
        return _end(engine)

    def load(self, cached_tokens: int = 0) -> ReplicaLoad:
        """Return the load now. `cached_tokens`: of a new prompt."""
        info = self.client.info
        return ReplicaLoad(
            replica=self.number,
            cached_tokens=cached_tokens,
            waiting_tokens=sum(stream.to_compute for stream in self.client.waiting),
            num_open=self.client.num_streams,
            num_places=1 if info is None else info.max_num_seqs,
            num_requests=self.num_requests,
        )

    async def stats(self) -> dict[str, int | float] | None:
        """Return the engine's figures; None if no engine answers soon."""
        with contextlib.suppress(AiciError, TimeoutError):
            async with asyncio.timeout(STATS_S):
                stats: dict[str, int | float] = await self.client.call("stats")
                return stats
        return None

    def status(self) -> ReplicaStatus:
        return ReplicaStatus(
            replica=self.number,
            state=self.state,
            cpus=self.share.cpus,
            num_threads=self.share.num_threads,
            num_open=self.client.num_streams,
            num_waiting=len(self.client.waiting),
            oldest_wait_s=self.oldest_wait_s,
            num_restarts=self.num_restarts,
            num_requests=self.num_requests,
            prompt_tokens=self.prompt_tokens,
            expected_tokens=self.expected_tokens,
            node="" if self._engine is None else self._engine.node,
        )


async def _end(engine: ReplicaEngine | None) -> None:
    if engine is not None:
        await engine.__aexit__()
