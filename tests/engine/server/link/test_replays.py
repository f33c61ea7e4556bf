"""Streams whose engine or runtime dies: those that have given nothing are sent to the next, once."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from aici_base.errors import AiciError, RuntimeDiedError, TimedOutError, UnavailableError
from aici_engine.config import SamplingParams
from aici_engine.events import FinishReason
from aici_engine.server.link import wire
from aici_engine.server.link.client import EngineClient
from aici_engine.server.link.stream import EngineStream
from tests.support.fake_engine import FakeEngine, Script, fails, says, silent

GREEDY = SamplingParams(temperature=0.0)
DEAD = UnavailableError("the engine process has died")


def talk(main: Callable[[], Awaitable[None]]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(30):
            await main()

    asyncio.run(limited())


async def ended(stream: EngineStream) -> wire.FinishOut:
    async for _ in stream:
        pass
    assert stream.finish is not None
    return stream.finish


def next_engine(client: EngineClient, *scripts: Script) -> FakeEngine:
    engine = FakeEngine(list(scripts) or [says("Hello")])
    engine.client = client
    client.connected(engine, engine.info)
    return engine


def accepted(submit: wire.Submit) -> list[wire.StreamOut]:
    return [wire.AcceptedOut(submit.stream)]


def begun(submit: wire.Submit) -> list[wire.StreamOut]:
    return [wire.AcceptedOut(submit.stream), wire.TokenOut(submit.stream, 1, b"a", "a", False, None, [])]


def test_a_stream_that_has_given_nothing_is_sent_to_the_next_engine() -> None:
    async def main() -> None:
        engine = FakeEngine([silent, accepted])
        client = engine.client
        streams = [
            client.open(wire.Submit([1, 2], GREEDY, controller="regex", argument="a")),
            client.open(wire.Submit([3], GREEDY)),
        ]
        client.lost(DEAD, will_return=True)
        again = next_engine(client)
        for stream in streams:
            assert (await ended(stream)).text == "Hello"
        assert again.submitted == engine.submitted
        assert client.num_streams == 0

    talk(main)


def test_a_client_hears_once_that_its_request_was_accepted() -> None:
    async def main() -> None:
        engine = FakeEngine([accepted])
        stream = engine.client.open(wire.Submit([1], GREEDY))
        engine.client.lost(DEAD, will_return=True)
        next_engine(engine.client, lambda submit: [*accepted(submit), *says("a")(submit)])
        kinds = [type(event) async for event in stream]
        assert kinds == [wire.AcceptedOut, wire.TokenOut, wire.FinishOut]

    talk(main)


def test_a_stream_that_has_begun_ends_at_once() -> None:
    async def main() -> None:
        engine = FakeEngine([begun])
        stream = engine.client.open(wire.Submit([1], GREEDY))
        engine.client.lost(DEAD, will_return=True)
        assert (await ended(stream)).failure == wire.Failure.of(DEAD)
        assert not next_engine(engine.client).submitted

    talk(main)


def test_a_whole_stream_begins_again_and_gives_nothing_of_its_first_attempt() -> None:
    async def main() -> None:
        engine = FakeEngine([begun])
        watched: list[wire.StreamOut] = []
        stream = engine.client.open(wire.Submit([1], GREEDY), is_whole=True, watch=watched.append)
        engine.client.lost(DEAD, will_return=True)
        next_engine(engine.client, says("x", "y"))
        assert [event.text async for event in stream if isinstance(event, wire.TokenOut)] == ["x", "y"]
        assert stream.result().text == "xy"
        # The client's budget pays for the token once that both engines have computed.
        kinds = [type(event) for event in watched]
        assert kinds == [wire.AcceptedOut, wire.TokenOut, wire.TokenOut, wire.FinishOut]

    talk(main)


def test_a_whole_stream_that_was_in_two_engines_fails_as_unavailable() -> None:
    async def main() -> None:
        engine = FakeEngine([begun])
        stream = engine.client.open(wire.Submit([1], GREEDY), is_whole=True)
        engine.client.lost(DEAD, will_return=True)
        next_engine(engine.client, begun)
        engine.client.lost(DEAD, will_return=True)
        [event] = [event async for event in stream if not isinstance(event, wire.AcceptedOut | wire.TokenOut)]
        assert isinstance(event, wire.FinishOut)
        with pytest.raises(UnavailableError, match="two engines have died"):
            stream.result()

    talk(main)


def test_others_have_turns_while_a_long_whole_stream_is_read() -> None:
    async def main() -> None:
        engine = FakeEngine([says(*"a" * 1000)])
        stream = engine.client.open(wire.Submit([1], GREEDY), is_whole=True)
        num_turns = 0

        async def other() -> None:
            nonlocal num_turns
            while True:
                num_turns += 1
                await asyncio.sleep(0)

        others = asyncio.create_task(other())
        await ended(stream)
        others.cancel()
        assert num_turns > 10

    talk(main)


def test_a_stream_whose_runtime_has_died_is_sent_again_once() -> None:
    died = fails(wire.Failure.of(RuntimeDiedError("the runtime died")))

    async def main() -> None:
        engine = FakeEngine([died, says("a")])
        assert (await ended(engine.client.open(wire.Submit([1], GREEDY, controller="regex")))).text == "a"
        engine = FakeEngine([died, died, says("a")])
        assert (await ended(engine.client.open(wire.Submit([1], GREEDY, controller="regex")))).failure is not None
        assert engine.client.num_streams == 0
        engine = FakeEngine([fails(wire.Failure.of(RuntimeDiedError("the runtime died")), "begun"), says("a")])
        assert (await ended(engine.client.open(wire.Submit([1], GREEDY, controller="regex")))).failure is not None
        assert len(engine.submitted) == 1

    talk(main)


def test_a_request_that_is_sent_again_and_again_kills_three_engines() -> None:
    async def main() -> None:
        client = FakeEngine([begun]).client
        for _ in range(3):
            with_it = client.open(wire.Submit([6, 6, 6], GREEDY)), client.open(wire.Submit([1], GREEDY))
            client.lost(DEAD, will_return=True)
            for stream in with_it:
                assert (await ended(stream)).failure == wire.Failure.of(DEAD)
            next_engine(client, begun)
        with pytest.raises(UnavailableError, match="3 of the last 3"):
            client.open(wire.Submit([6, 6, 6], GREEDY))
        assert client.num_streams == 0
        client.open(wire.Submit([6, 6, 7], GREEDY))

    talk(main)


def test_a_request_that_ends_well_between_deaths_is_no_suspect() -> None:
    async def main() -> None:
        client = FakeEngine([begun]).client
        for _ in range(4):
            client.open(wire.Submit([6], GREEDY))
            client.lost(DEAD, will_return=True)
            next_engine(client, says("a"), begun)
            assert (await ended(client.open(wire.Submit([6], GREEDY)))).text == "a"

    talk(main)


def test_without_another_engine_every_stream_ends() -> None:
    async def main() -> None:
        engine = FakeEngine([silent])
        sent = engine.client.open(wire.Submit([1], GREEDY))
        engine.client.lost(DEAD, will_return=True)
        held = engine.client.open(wire.Submit([2], GREEDY))
        engine.client.lost(DEAD)
        for stream in (sent, held):
            assert (await ended(stream)).failure == wire.Failure.of(DEAD)
        with pytest.raises(UnavailableError):
            engine.client.open(wire.Submit([3], GREEDY))

    talk(main)


def test_requests_whose_clients_have_left_are_not_sent_again() -> None:
    async def main() -> None:
        engine = FakeEngine([silent])
        early, late, expired = (engine.client.open(wire.Submit([number], GREEDY)) for number in range(3))
        client = engine.client
        client.lost(DEAD, will_return=True)
        async with late:
            pass
        async with early:
            pass
        client.fail(expired, TimedOutError("the request took longer than 1 s"))
        again = next_engine(client)
        assert again.submitted == []
        assert [(await ended(each)).reason for each in (early, late)] == [FinishReason.ABORT] * 2
        assert (await ended(expired)).failure == wire.Failure("timeout_error", "the request took longer than 1 s")

    talk(main)


def test_a_stream_that_was_aborted_before_the_death_is_not_sent_again() -> None:
    class Deaf:
        def send(self, message: wire.ToEngine) -> None: ...

    async def main() -> None:
        client = EngineClient()
        client.connected(Deaf(), wire.EngineInfo(10, 10, 1))
        stream = client.open(wire.Submit([1], GREEDY))
        stream.abort()
        client.lost(DEAD, will_return=True)
        again = next_engine(client)
        assert not again.submitted
        assert (await ended(stream)).failure == wire.Failure.of(DEAD)

    talk(main)


def test_a_request_that_kills_each_engine_is_sent_twice_and_the_others_live() -> None:
    """The second stream kills its engine at once. Replayed one by one, no other stream is taken for the reason."""

    async def main() -> None:
        first = FakeEngine([silent])
        client = first.client
        streams = [client.open(wire.Submit([number], GREEDY)) for number in range(4)]
        client.lost(DEAD, will_return=True)

        second = next_engine(client, says("a"), silent)
        assert [submit.prompt for submit in second.submitted] == [[0], [1]]
        client.lost(DEAD, will_return=True)
        third = next_engine(client, says("b"))
        ends = [await ended(stream) for stream in streams]
        assert [submit.prompt for submit in third.submitted] == [[2], [3]]
        assert [end.text for end in ends] == ["a", "", "b", "b"]
        assert ends[1].failure is not None
        assert "two engines have died" in ends[1].failure.message
        with pytest.raises(AiciError, match="two engines have died"):
            streams[1].result()

    talk(main)


def test_a_slow_replay_does_not_hold_up_the_others_for_long() -> None:
    async def main() -> None:
        first = FakeEngine([silent])
        client = first.client
        streams = [client.open(wire.Submit([number], GREEDY)) for number in range(2)]
        client.lost(DEAD, will_return=True)
        again = next_engine(client, silent, says("b"))
        assert len(again.submitted) == 1
        assert (await ended(streams[1])).text == "b"
        streams[0].abort()

    talk(main)


def test_a_request_that_comes_while_an_engine_starts_is_refused_and_a_part_of_a_request_waits() -> None:
    async def main() -> None:
        engine = FakeEngine([silent])
        engine.client.lost(DEAD, will_return=True)
        with pytest.raises(UnavailableError, match="not up"):
            engine.client.check_up()
        stream = engine.client.open(wire.Submit([1], GREEDY))
        next_engine(engine.client)
        assert (await ended(stream)).text == "Hello"

    talk(main)
