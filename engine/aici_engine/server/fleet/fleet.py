"""The replicas of a model: starts and ends engines, drains replicas, and follows the load."""

import asyncio
import itertools
import logging
import time
from collections.abc import Coroutine, Sequence
from typing import Any, Final, Protocol, Self

from aici_base.errors import AiciError, InUseError, NotFoundError
from aici_engine.server.fleet.cores import CoreShare
from aici_engine.server.fleet.fleet_client import FleetClient
from aici_engine.server.fleet.replica import SICK, WITHOUT_ENGINE, EngineFactory, Replica, ReplicaState
from aici_engine.server.fleet.scaling import FleetLoad, ScalingRules, Trend

_RETRY_S: Final = 60.0
_RETRY_REMOTE_S: Final = 2.0
_LOOK_S: Final = 0.5
_ON_THE_WAY: Final = (ReplicaState.STARTING, ReplicaState.UP, ReplicaState.HANGING, ReplicaState.RESTARTING)

_log = logging.getLogger(__name__)


class RemotePlaces(Protocol):
    """The machines of a fleet's engines."""

    def close(self) -> None:
        """Give all machines back. Idempotent."""


class ReplicaFleet:
    """Keeps `rules.least` to `rules.most` replicas running. A context manager; `client` opens streams on the replicas.

    Entering waits until `rules.least` engines are ready, and raises the error of an engine that does not start.
    `failed` is set if the engines of all replicas keep dying. `shares`: of the machine, in the order of the replicas.
    `places`: of engines on other machines, closed with the fleet. Such engines may come back at any time, so the fleet
    tries again soon, and never fails.
    """

    def __init__(
        self,
        make: EngineFactory,
        shares: Sequence[CoreShare],
        rules: ScalingRules,
        *,
        places: "RemotePlaces | None" = None,
    ) -> None:
        numbers = itertools.count(1)
        self.replicas = tuple(Replica(i, share, make, numbers) for i, share in enumerate(shares, 1))
        self.client = FleetClient(self.replicas)
        self.failed = asyncio.Event()
        self._rules = rules
        self._places = places
        self._tasks: set[asyncio.Task[None]] = set()
        self._ends: set[asyncio.Task[None]] = set()
        self._drains: dict[int, asyncio.Task[None]] = {}
        self._after_drain: dict[int, ReplicaState] = {}
        self._told: dict[int, str] = {}
        self._watches: dict[int, asyncio.Task[None]] = {}

    async def __aenter__(self) -> Self:
        first, *others = self.replicas[: self._rules.least]
        try:
            # Alone: the first start may write files that the others read.
            await self._started(first)
            await asyncio.gather(*[self._begin(self._started(each)) for each in others])
        except BaseException:
            await self.__aexit__()
            raise
        if self._rules.least < self._rules.most:
            self._begin(self._follow_load())
        return self

    async def __aexit__(self, *exc: object) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for replica in self.replicas:
            self._stop(replica, ReplicaState.STANDBY)
        await asyncio.gather(*self._ends)
        if self._places is not None:
            self._places.close()

    @property
    def is_degraded(self) -> bool:
        """Whether a replica that should serve cannot. Drained replicas should not."""
        return any(each.state in SICK for each in self.replicas)

    def find(self, number: int) -> Replica:
        """Return a replica by its number, from 1. Raises NotFoundError."""
        if not 1 <= number <= len(self.replicas):
            raise NotFoundError(f"there is no replica {number}", hint=f"the replicas are 1 to {len(self.replicas)}")
        return self.replicas[number - 1]

    def drain(self, number: int) -> None:
        """Send no more requests to a replica, and end the engine after the last request. Idempotent.

        Raises InUseError if no other replica is up, or while the replica starts.
        """
        replica = self.find(number)
        if replica.state in (ReplicaState.DRAINING, ReplicaState.DRAINED):
            self._after_drain[number] = ReplicaState.DRAINED  # also if the load ended the replica's service
            return
        if replica.state is ReplicaState.STARTING:
            raise InUseError(f"replica {number} is starting", hint="drain it when it is up")
        if not any(each.state is ReplicaState.UP for each in self.replicas if each is not replica):
            raise InUseError(
                f"replica {number} cannot be drained: no other replica is up", hint="let another replica rejoin first"
            )
        self._drain(replica, ReplicaState.DRAINED)

    def rejoin(self, number: int) -> None:
        """Let a drained or failed replica take requests again, with a new engine if the old engine has ended.

        Idempotent.
        """
        replica = self.find(number)
        if replica.state is ReplicaState.DRAINING:
            if (drain := self._drains.pop(number, None)) is not None:
                drain.cancel()
            replica.end_drain()
            replica.client.changed()
        elif replica.state in WITHOUT_ENGINE:
            self._start(replica)

    def move(self, number: int) -> None:
        """Let a replica go to another machine, without a failed request: drain it while another replica is up, then
        start it again if replicas are too few."""
        self._begin(self._move(self.find(number)))

    async def _move(self, replica: Replica) -> None:
        while not any(each.state is ReplicaState.UP for each in self.replicas if each is not replica):
            starts = any(each.state is ReplicaState.STARTING for each in self.replicas)
            standby = next((each for each in self.replicas if each.state is ReplicaState.STANDBY), None)
            if standby is not None and not starts:
                self._start(standby)
            await asyncio.sleep(_LOOK_S)
        if replica.state is not ReplicaState.UP:
            return
        _log.info("replica %d leaves its machine", replica.number)
        self._drain(replica, ReplicaState.STANDBY)
        await asyncio.wait([self._drains[replica.number]])
        if self.find(replica.number).state is ReplicaState.STANDBY and self._num_on_the_way() < self._rules.least:
            await asyncio.gather(*self._ends)
            self._start(replica)

    # Starts and ends.

    async def _started(self, replica: Replica) -> None:
        await replica.start()
        self._told.pop(replica.number, None)
        _log.info("replica %d is up", replica.number)
        self._watches[replica.number] = self._begin(self._watch(replica, replica.failed))

    async def _watch(self, replica: Replica, failed: asyncio.Event) -> None:
        """Try again later when the engine of a replica keeps dying."""
        await failed.wait()
        _log.error("the engine of replica %d keeps dying", replica.number)
        self._begin(self._give_up(replica))

    def _stop(self, replica: Replica, state: ReplicaState) -> None:
        """End the engine of a replica, in a task that nothing cancels. The replica has the new state at once."""
        if (watch := self._watches.pop(replica.number, None)) is not None:
            watch.cancel()
        task = asyncio.get_running_loop().create_task(replica.stop(state))
        self._ends.add(task)
        task.add_done_callback(self._ends.discard)

    async def _give_up(self, replica: Replica) -> None:
        """Try again later, unless no other replica has an engine."""
        self._stop(replica, ReplicaState.FAILED)
        if self._places is None and all(each.state in WITHOUT_ENGINE for each in self.replicas):
            self.failed.set()
            return
        await asyncio.sleep(_RETRY_S if self._places is None else _RETRY_REMOTE_S)
        if replica.state is ReplicaState.FAILED:
            self._start(replica)

    def _start(self, replica: Replica) -> None:
        """Start a replica in the background. The replica has the new state at once."""
        replica.begin_start()
        self._begin(self._start_or_give_up(replica))

    async def _start_or_give_up(self, replica: Replica) -> None:
        try:
            await self._started(replica)
        except (AiciError, OSError) as error:
            if self._told.get(replica.number) != str(error):
                self._told[replica.number] = str(error)
                _log.error("replica %d does not start: %s", replica.number, error)
            self._begin(self._give_up(replica))

    def _drain(self, replica: Replica, then: ReplicaState) -> None:
        self._after_drain[replica.number] = then
        replica.begin_drain()
        _log.info("replica %d drains: %d sequences", replica.number, replica.client.num_streams)
        task = self._drains[replica.number] = self._begin(self._end_drain(replica))
        task.add_done_callback(lambda _: self._drains.get(replica.number) is task and self._drains.pop(replica.number))

    async def _end_drain(self, replica: Replica) -> None:
        await replica.client.idle.wait()
        then = self._after_drain[replica.number]
        self._stop(replica, then)
        _log.info("replica %d is %s", replica.number, then)

    # The load.

    async def _follow_load(self) -> None:
        """Look twice a second while there is work or more than the least number of replicas run."""
        trend = Trend()
        while True:
            if not self.client.num_streams and self._num_on_the_way() <= self._rules.least:
                trend = Trend()
                self.client.busy.clear()
                await self.client.busy.wait()
            seen = FleetLoad(
                at_s=time.monotonic(),
                num_replicas=self._num_on_the_way(),
                num_open=self.client.num_streams,
                oldest_wait_s=max(each.oldest_wait_s for each in self.replicas),
            )
            trend, change = self._rules.decide(trend, seen)
            if change > 0:
                self._grow(seen)
            elif change < 0:
                self._shrink()
            await asyncio.sleep(_LOOK_S)

    def _num_on_the_way(self) -> int:
        return sum(each.state in _ON_THE_WAY for each in self.replicas)

    def _grow(self, seen: FleetLoad) -> None:
        standby = next((each for each in self.replicas if each.state is ReplicaState.STANDBY), None)
        if standby is not None:
            _log.info("replica %d starts: a request has waited for %.1f s", standby.number, seen.oldest_wait_s)
            self._start(standby)

    def _shrink(self) -> None:
        up = [each for each in self.replicas if each.state is ReplicaState.UP]
        if len(up) > self._rules.least:
            self._drain(min(up, key=lambda each: (each.client.num_streams, -each.number)), ReplicaState.STANDBY)

    def _begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
