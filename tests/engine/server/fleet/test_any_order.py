"""Random deaths, returns, drains and requests: every stream ends exactly once, and is on one replica until then."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from hypothesis import given, settings
from hypothesis import strategies as st

from aici_base.errors import AiciError
from aici_engine.config import SamplingParams
from aici_engine.server.fleet.fleet import ReplicaFleet
from aici_engine.server.fleet.replica import ReplicaState
from aici_engine.server.link import wire
from aici_engine.server.link.client import EngineClient
from tests.support.fake_engine import says, silent
from tests.support.fake_replicas import FakeReplicas, fleet_of

if TYPE_CHECKING:
    from aici_engine.server.link.stream import EngineStream

_NUM: Final = 3
_KINDS: Final = ("open", "open", "open", "die", "come", "drain", "rejoin", "abort", "give up", "turn")
STEPS = st.lists(st.tuples(st.sampled_from(_KINDS), st.integers(1, _NUM)), max_size=40)


def begins(submit: wire.Submit) -> list[wire.StreamOut]:
    return [wire.TokenOut(submit.stream, 1, b"a", "a", False, None, [])]


class Story:
    """Plays steps on a fleet and counts the ends of streams."""

    def __init__(self, fleet: ReplicaFleet, replicas: FakeReplicas) -> None:
        self.fleet = fleet
        self.replicas = replicas
        self.streams: list[EngineStream] = []
        self.ends: Counter[int] = Counter()

    async def play(self, kind: str, number: int) -> None:
        with contextlib.suppress(AiciError):
            match kind:
                case "open":
                    tokens = [number * 100] * (20 * number)
                    self.streams.append(
                        self.fleet.client.open(wire.Submit(tokens, SamplingParams()), watch=self._watch)
                    )
                case "die" if self._is_running(number) and self._client(number).is_ready:
                    self.replicas.made[number].die()
                case "come" if self._is_running(number) and not self._client(number).is_ready:
                    self.replicas.made[number].come()
                case "drain":
                    self.fleet.drain(number)
                case "rejoin":
                    self.fleet.rejoin(number)
                case "abort" if self.streams:
                    self.streams[number % len(self.streams)].abort()
                case "give up" if self._is_running(number) and self._client(number).is_ready:
                    self.replicas.made[number].die(will_return=False)
                    self.replicas.made[number].failed.set()
                case "turn":
                    await asyncio.sleep(0.001)

    def check(self) -> None:
        assert max(self.ends.values(), default=0) <= 1
        on_replicas = self.fleet.client.num_streams
        assert on_replicas == len(self.streams) - self.ends.total(), "every open stream is on one replica"
        up = any(each.client.is_ready for each in self.fleet.replicas)
        assert self.fleet.client.is_ready == self.fleet.client.up.is_set() == up
        assert self.fleet.client.down.is_set() != up

    def _watch(self, event: wire.StreamOut) -> None:
        if isinstance(event, wire.FinishOut):
            self.ends[event.stream] += 1

    def _client(self, number: int) -> EngineClient:
        return self.fleet.replicas[number - 1].client

    def _is_running(self, number: int) -> bool:
        engine = self.replicas.made.get(number)
        states = (ReplicaState.UP, ReplicaState.RESTARTING, ReplicaState.DRAINING)
        return (
            engine is not None
            and engine.is_running
            and engine.client is self._client(number)
            and self.fleet.replicas[number - 1].state in states
        )


@given(STEPS)
@settings(max_examples=40, deadline=None)
def test_every_stream_ends_once(steps: Sequence[tuple[str, int]]) -> None:
    async def main() -> None:
        replicas = FakeReplicas(default=[silent, begins, says("Hello"), silent])
        async with fleet_of(replicas, least=_NUM) as fleet:
            story = Story(fleet, replicas)
            for kind, number in steps:
                await story.play(kind, number)
                story.check()
        assert story.ends.total() == len(story.streams)
        assert fleet.client.num_streams == 0

    asyncio.run(main())
