"""The client of a fleet: opens streams on replicas, and moves a stream without output when its replica dies."""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from aici_base.errors import AiciError, UnavailableError
from aici_engine.server.fleet.prefix_tree import PrefixTree
from aici_engine.server.fleet.replica import Replica, ReplicaState
from aici_engine.server.fleet.routing import choose
from aici_engine.server.link import wire
from aici_engine.server.link.client import EngineClient
from aici_engine.server.link.stream import EngineStream, Watch, unwatched
from aici_engine.server.link.suspects import Suspects

_MEANS = frozenset({"cache_usage"})
"""The figure of the fleet is the mean of these figures of the engines, and the sum of all other figures."""


class FleetClient:
    """Implements `ModelClient` over replicas. `up` is set while a replica takes requests, `down` while none does."""

    def __init__(self, replicas: Sequence[Replica], tree: PrefixTree | None = None) -> None:
        self._replicas = tuple(replicas)
        self._tree = tree or PrefixTree()
        self._suspects = Suspects()
        self._is_closing = False
        self._ready: set[int] = set()
        self.on_guest_time: Callable[[dict[str, float]], None] = lambda _: None
        self.up, self.down, self.busy = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.down.set()
        for replica in replicas:
            self._prepare(replica, replica.client)
            replica.prepare = partial(self._prepare, replica)

    def _prepare(self, replica: Replica, client: EngineClient) -> None:
        client.on_guest_time = lambda used_s: self.on_guest_time(used_s)
        client.elsewhere = lambda stream: self._move(stream, replica)
        client.changed = lambda: self.changed(replica)
        client.suspects = self._suspects

    @property
    def info(self) -> wire.EngineInfo | None:
        """The sizes of all replicas with an engine together."""
        infos = [replica.client.info for replica in self._replicas if replica.client.is_ready]
        known = [info for info in infos if info is not None]
        if not known:
            return self._last_info()
        return self._sum(known)

    def _last_info(self) -> wire.EngineInfo | None:
        """Return the sizes of the last engine that was up: admitted requests need the sizes."""
        return next((each.client.info for each in self._replicas if each.client.info is not None), None)

    @staticmethod
    def _sum(infos: Sequence[wire.EngineInfo]) -> wire.EngineInfo:
        first = infos[0]
        return wire.EngineInfo(
            first.vocab_size,
            min(info.max_len for info in infos),
            sum(info.max_num_seqs for info in infos),
            first.eos_tokens,
            first.states_size,
            sum(info.memory_bytes for info in infos),
            {key: name for info in infos for key, name in info.lacking.items()},
        )

    @property
    def is_ready(self) -> bool:
        return any(replica.client.is_ready for replica in self._replicas)

    @property
    def is_hanging(self) -> bool:
        """Whether no replica can answer, and a replica hangs."""
        states = {replica.state for replica in self._replicas}
        return ReplicaState.HANGING in states and states.isdisjoint({ReplicaState.UP, ReplicaState.DRAINING})

    @property
    def num_streams(self) -> int:
        return sum(replica.client.num_streams for replica in self._replicas)

    @property
    def num_restarts(self) -> int:
        return sum(replica.num_restarts for replica in self._replicas)

    def open(self, submit: wire.Submit, *, is_whole: bool = False, watch: Watch = unwatched) -> EngineStream:
        """Submit a sequence to the best replica. If no replica takes requests, the sequence waits for a replica that
        starts again; without such a replica, raise UnavailableError."""
        candidates = self._candidates() or self._returning()
        if not candidates:
            raise _no_replica()
        replica, cached_tokens = self._best(candidates, submit)
        stream = replica.client.open(submit, is_whole=is_whole, watch=watch)
        self.busy.set()
        self._record(stream, replica, cached_tokens, submit)
        return stream

    def check_up(self) -> None:
        """Raise UnavailableError if no replica has an engine."""
        if not self.is_ready:
            raise _no_replica()

    async def ping(self, limit_s: float) -> None:
        await asyncio.gather(*(each.client.ping(limit_s) for each in self._replicas if each.client.is_ready))

    async def call(self, method: str) -> Any:
        """Return the figures of all replicas together for "stats". Other calls go to one replica."""
        self.check_up()
        if method != "stats":
            return await next(each for each in self._replicas if each.client.is_ready).client.call(method)
        ready = [each for each in self._replicas if each.client.is_ready]
        answers = [figures for figures in await asyncio.gather(*(each.stats() for each in ready)) if figures]
        if not answers:
            raise UnavailableError("no replica answers", hint="the engines are starting: try again")
        return _together(answers) | {
            "num_replicas": len(self._replicas),
            "replicas_up": sum(each.state is ReplicaState.UP for each in self._replicas),
        }

    def lost(self, why: AiciError) -> None:
        """End all streams with `why`: the model is unloaded, or the server ends."""
        self._is_closing = True
        for replica in self._replicas:
            replica.client.lost(why)

    def changed(self, replica: Replica) -> None:
        """Take note that an engine has come or gone."""
        if replica.client.is_ready and replica.state is ReplicaState.UP and replica.number not in self._ready:
            self._ready.add(replica.number)
            self._take_over(replica)
        elif not replica.client.is_ready:
            self._ready.discard(replica.number)
            self._tree.forget(replica.number)
        if self.is_ready:
            self.down.clear()
            self.up.set()
        else:
            self.up.clear()
            self.down.set()

    # Routing.

    def _candidates(self, but: Replica | None = None) -> list[Replica]:
        """Return the replicas that take requests."""
        return [each for each in self._replicas if each is not but and each.state is ReplicaState.UP]

    def _returning(self) -> list[Replica]:
        """Return the replicas that will take requests soon: their engine has died or hangs."""
        soon = (ReplicaState.RESTARTING, ReplicaState.HANGING)
        return [each for each in self._replicas if each.state in soon]

    def _best(self, candidates: Sequence[Replica], submit: wire.Submit) -> tuple[Replica, int]:
        """Return the best replica, and the number of cached tokens there."""
        cached = self._tree.match(submit.salt, submit.prompt)
        best = choose(len(submit.prompt), [each.load(cached.get(each.number, 0)) for each in candidates])
        return next(each for each in candidates if each.number == best.replica), best.cached_tokens

    def _record(self, stream: EngineStream, replica: Replica, cached_tokens: int, submit: wire.Submit) -> None:
        prompt_len = len(submit.prompt)
        stream.to_compute = prompt_len - cached_tokens
        replica.num_requests += 1
        replica.prompt_tokens += prompt_len
        replica.expected_tokens += cached_tokens
        self._tree.add(submit.salt, submit.prompt, replica.number)

    def _move(self, stream: EngineStream, source: Replica, target: Replica | None = None) -> bool:
        """Move a stream that has given nothing to another replica. Return False without another replica."""
        submit = stream.submit
        candidates = self._candidates(source) if target is None else [target]
        if self._is_closing or submit is None or not candidates:
            return False
        replica, cached_tokens = self._best(candidates, submit)
        source.client.release(stream)
        replica.client.adopt(stream)
        self._record(stream, replica, cached_tokens, submit)
        return True

    def _take_over(self, replica: Replica) -> None:
        """Give waiting streams to a replica that has just come up: all streams without an engine, and the newest
        waiting streams of the fullest replicas.

        A stream that was in an engine at its death does not move again, because the stream may be the reason.
        """
        others = [each for each in self._replicas if each is not replica]
        for other in others:
            if not other.client.is_ready:
                for stream in other.client.waiting:
                    self._move(stream, other, replica)
        for other in sorted(others, key=lambda each: -each.client.num_streams):
            for stream in reversed(other.client.waiting):
                if other.client.num_streams <= replica.client.num_streams + 1:
                    break
                if not stream.num_deaths:
                    self._move(stream, other, replica)


def _no_replica() -> UnavailableError:
    return UnavailableError("no replica is up", hint="the engines are starting: try again")


def _together(figures: Sequence[dict[str, int | float]]) -> dict[str, int | float]:
    """Return the figures of several engines together."""
    total = {name: sum(each[name] for each in figures) for name in figures[0]}
    return total | {name: total[name] / len(figures) for name in _MEANS & total.keys()}
