"""Replicas whose engines play the scripts of a test."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aici_base.errors import AiciError, UnavailableError
from aici_engine.server.fleet.cores import CoreShare
from aici_engine.server.fleet.fleet import ReplicaFleet
from aici_engine.server.fleet.scaling import ScalingRules
from aici_engine.server.link.client import EngineClient
from tests.support.fake_engine import FakeEngine, Script, says

DEAD = UnavailableError("the engine process has died")


class FakeReplicaEngine:
    """A supervisor whose engine is up at once. `engine`: the newest one."""

    def __init__(self, owner: "FakeReplicas", replica: int, client: EngineClient) -> None:
        self._owner = owner
        self._replica = replica
        self.client = client
        self.failed = asyncio.Event()
        self.node = ""
        self.is_running = False

    async def __aenter__(self) -> "FakeReplicaEngine":
        if self._replica in self._owner.slow:
            self._owner.num_starting += 1
            try:
                await asyncio.Event().wait()
            finally:
                self._owner.num_starting -= 1
        if self._replica >= self._owner.fails_from and self._owner.fails:
            raise self._owner.fails.pop(0)
        self._owner.num_running += 1
        self.is_running = True
        self.come()
        return self

    async def __aexit__(self, *exc: object) -> None:
        if self.is_running:
            self._owner.num_running -= 1
            self.is_running = False
        self.client.lost(UnavailableError("the server is stopping"))

    def come(self) -> None:
        stats = {"active_requests": 0, "cache_usage": 0.5, "tokens_generated": self._replica}
        scripts = list(self._owner.scripts.get(self._replica) or self._owner.default)
        self.engine = FakeEngine(scripts, calls={"stats": stats})
        self.engine.client = self.client
        self.client.connected(self.engine, self.engine.info)

    def die(self, *, will_return: bool = True) -> None:
        self.client.lost(DEAD, will_return=will_return)


@dataclass
class FakeReplicas:
    """Makes the engines of a fleet. `scripts`: of a replica's engines; of the others, `default`. `fails`: the next
    starts raise these errors, of the replicas from the number `fails_from` on. `slow`: replicas whose engines are never
    ready."""

    scripts: dict[int, list[Script]] = field(default_factory=dict)
    default: list[Script] = field(default_factory=lambda: [says("Hello", " there")])
    fails: list[AiciError] = field(default_factory=list)
    fails_from: int = 1
    slow: set[int] = field(default_factory=set)
    num_starting: int = 0
    made: dict[int, FakeReplicaEngine] = field(default_factory=dict)
    num_running: int = 0

    def __call__(self, replica: int, share: CoreShare, client: EngineClient) -> FakeReplicaEngine:
        self.made[replica] = FakeReplicaEngine(self, replica, client)
        return self.made[replica]

    def submitted(self, replica: int) -> list[list[int]]:
        """Return the prompts that the replica's newest engine got."""
        return [submit.prompt for submit in self.made[replica].engine.submitted]

    def fleet(self, rules: ScalingRules) -> ReplicaFleet:
        return ReplicaFleet(self, [CoreShare((), 1)] * rules.most, rules)


@asynccontextmanager
async def fleet_of(
    replicas: FakeReplicas, least: int = 2, most: int | None = None, **rules: float
) -> AsyncIterator[ReplicaFleet]:
    """A running fleet. After it, no engine runs."""
    async with asyncio.timeout(30):
        async with replicas.fleet(ScalingRules(least=least, most=most or least, **rules)) as fleet:
            yield fleet
        assert replicas.num_running == 0


def prompts(*lengths: int) -> Sequence[list[int]]:
    """Return prompts that begin differently."""
    return [[1000 * number + position for position in range(length)] for number, length in enumerate(lengths, 1)]
