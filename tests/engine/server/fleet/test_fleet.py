"""A fleet over engines that play scripts: where streams go, and what happens when replicas die, drain and come back."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable

import pytest

from aici_base.errors import AiciError, InUseError, NotFoundError, TimedOutError, UnavailableError
from aici_engine.config import SamplingParams
from aici_engine.events import FinishReason
from aici_engine.server.fleet.fleet import ReplicaFleet
from aici_engine.server.fleet.replica import ReplicaState
from aici_engine.server.link import wire
from aici_engine.server.link.stream import EngineStream
from tests.support.fake_engine import says, silent
from tests.support.fake_replicas import FakeReplicas, fleet_of, prompts

GREEDY = SamplingParams(temperature=0.0)


def run(main: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(main())  # type: ignore[arg-type]


def begun(submit: wire.Submit) -> Iterable[wire.StreamOut]:
    return [wire.TokenOut(submit.stream, 1, b"a", "a", False, None, [])]


async def ended(stream: EngineStream) -> wire.FinishOut:
    async for _ in stream:
        pass
    assert stream.finish is not None
    return stream.finish


def states(fleet: ReplicaFleet) -> list[str]:
    return [str(each.state) for each in fleet.replicas]


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.005)


def test_streams_go_to_the_replica_with_less_to_do() -> None:
    async def main() -> None:
        replicas = FakeReplicas(default=[silent])
        async with fleet_of(replicas) as fleet:
            for prompt in prompts(100, 20, 20, 20):
                fleet.client.open(wire.Submit(prompt, GREEDY))
            assert [len(prompt) for prompt in replicas.submitted(1)] == [100]
            assert [len(prompt) for prompt in replicas.submitted(2)] == [20, 20, 20]

    run(main)


def test_a_chat_stays_with_its_replica_and_another_salt_is_another_chat() -> None:
    async def main() -> None:
        replicas = FakeReplicas()
        async with fleet_of(replicas) as fleet:
            [chat, other] = prompts(64, 64)
            for turn in range(16, 65, 16):
                for prompt in (chat, other):
                    await ended(fleet.client.open(wire.Submit(prompt[:turn], GREEDY, salt="me")))
            assert {prompt[0] for prompt in replicas.submitted(1)} == {chat[0]}
            assert {prompt[0] for prompt in replicas.submitted(2)} == {other[0]}
            expected = [each.status().expected_tokens for each in fleet.replicas]
            assert expected == [16 + 32 + 48] * 2
            fleet.client.open(wire.Submit(chat, GREEDY, salt="you"))
            assert [each.status().expected_tokens for each in fleet.replicas] == expected

    run(main)


def test_streams_that_have_given_nothing_go_elsewhere_and_others_fail_at_once() -> None:
    async def main() -> None:
        replicas = FakeReplicas(scripts={1: [begun, silent], 2: [says("Hello")]})
        async with fleet_of(replicas) as fleet:
            far, near = prompts(400, 48)
            first = fleet.client.open(wire.Submit(near, GREEDY))
            await ended(fleet.client.open(wire.Submit(far, GREEDY)))
            second = fleet.client.open(wire.Submit([*near, 1], GREEDY))
            assert replicas.submitted(1) == [near, [*near, 1]]
            replicas.made[1].die()
            assert states(fleet) == ["restarting", "up"]
            assert (await ended(second)).text == "Hello"
            assert replicas.submitted(2) == [far, [*near, 1]]
            assert (await ended(first)).reason is FinishReason.FAIL
            with pytest.raises(UnavailableError):
                first.result()
            assert fleet.client.is_ready
            assert fleet.client.up.is_set()

    run(main)


def test_a_stream_in_two_engines_at_their_deaths_is_suspected() -> None:
    async def main() -> None:
        replicas = FakeReplicas(default=[silent])
        async with fleet_of(replicas, least=3) as fleet:
            stream = fleet.client.open(wire.Submit([1], GREEDY))
            replicas.made[1].die()
            killed = next(number for number in (2, 3) if replicas.submitted(number))
            innocent = fleet.client.open(wire.Submit([2] * 9, GREEDY))
            replicas.made[killed].die()
            assert "two engines" in str((await ended(stream)).failure)
            assert innocent.finish is None
            assert fleet.client.num_streams == 1

    run(main)


def test_a_moved_stream_keeps_its_time_limit_and_can_be_aborted() -> None:
    async def main() -> None:
        replicas = FakeReplicas(default=[silent])
        async with fleet_of(replicas) as fleet:
            late, _, left = (fleet.client.open(wire.Submit([number], GREEDY)) for number in range(3))
            late.expire_after(0.1)
            replicas.made[1].die()
            assert replicas.submitted(2) == [[1], [0]], "the second waits until the first has computed for a moment"
            left.abort()
            assert (await ended(left)).reason is FinishReason.ABORT
            await ended(late)
            with pytest.raises(TimedOutError):
                late.result()
            assert replicas.made[2].engine.aborted == [late.number]
            assert fleet.client.num_streams == 1

    run(main)


def test_without_any_replica_streams_wait_for_the_first_that_comes_back() -> None:
    async def main() -> None:
        replicas = FakeReplicas(scripts={1: [silent]})
        async with fleet_of(replicas) as fleet:
            stream = fleet.client.open(wire.Submit([1], GREEDY))
            replicas.made[2].die()
            replicas.made[1].die()
            assert not fleet.client.is_ready
            assert fleet.client.down.is_set()
            with pytest.raises(UnavailableError):
                fleet.client.check_up()
            replicas.made[2].come()
            assert fleet.client.up.is_set()
            assert (await ended(stream)).text == "Hello there"

    run(main)


def test_a_replica_that_comes_back_takes_waiting_streams_of_the_fullest() -> None:
    async def main() -> None:
        replicas = FakeReplicas(scripts={2: [silent]})
        async with fleet_of(replicas) as fleet:
            replicas.made[1].die()
            streams = [fleet.client.open(wire.Submit([number], GREEDY)) for number in range(6)]
            numbers = [stream.number for stream in streams]
            replicas.made[1].come()
            assert fleet.replicas[1].client.num_streams <= 1
            assert sorted(replicas.made[2].engine.aborted) == numbers[1:]
            for stream in streams[1:]:
                assert (await ended(stream)).text == "Hello there"

    run(main)


def test_a_stream_that_comes_back_to_its_first_engine_is_not_ended_by_its_move() -> None:
    async def main() -> None:
        replicas = FakeReplicas(default=[silent])
        async with fleet_of(replicas) as fleet:
            replicas.made[2].die()
            for number in range(4):
                fleet.client.open(wire.Submit([number], GREEDY))
            replicas.made[2].come()
            assert fleet.replicas[1].client.num_streams == 2
            replicas.made[2].die()
            assert fleet.replicas[0].client.num_streams == 4
            first = replicas.made[1]
            for number in first.engine.aborted:  # an engine acts on messages between two steps, so its answer is late
                first.client.receive(wire.FinishOut(number, FinishReason.ABORT, "", wire.UsageOut(0, 0, 0)))
            assert fleet.replicas[0].client.num_streams == 4

    run(main)


def test_a_drained_replica_ends_after_its_last_stream_and_rejoins_with_a_new_engine() -> None:
    async def main() -> None:
        replicas = FakeReplicas(scripts={1: [begun]})
        async with fleet_of(replicas) as fleet:
            running = fleet.client.open(wire.Submit([1], GREEDY))
            fleet.drain(1)
            fleet.drain(1)
            await asyncio.sleep(0)
            assert states(fleet) == ["draining", "up"]
            assert not fleet.is_degraded
            for number in range(3):
                assert (await ended(fleet.client.open(wire.Submit([number], GREEDY)))).text == "Hello there"
            with pytest.raises(InUseError):
                fleet.drain(2)
            running.abort()
            await ended(running)
            await until(lambda: states(fleet) == ["drained", "up"])
            assert replicas.num_running == 1
            first = replicas.made[1]
            fleet.rejoin(1)
            fleet.rejoin(1)
            await until(lambda: states(fleet) == ["up", "up"])
            assert replicas.made[1] is not first
            assert replicas.num_running == 2
            fleet.drain(2)
            await until(lambda: states(fleet) == ["up", "drained"])

    run(main)


def test_a_replica_that_rejoins_while_it_drains_keeps_its_engine() -> None:
    async def main() -> None:
        replicas = FakeReplicas(default=[begun])
        async with fleet_of(replicas) as fleet:
            fleet.client.open(wire.Submit([1], GREEDY))
            engine = replicas.made[1]
            fleet.drain(1)
            fleet.rejoin(1)
            assert states(fleet) == ["up", "up"]
            assert replicas.made[1] is engine
            with pytest.raises(NotFoundError, match="no replica 3"):
                fleet.drain(3)

    run(main)


def test_a_replica_that_starts_is_not_drained() -> None:
    async def main() -> None:
        replicas = FakeReplicas()
        async with fleet_of(replicas) as fleet:
            fleet.drain(2)
            await until(lambda: states(fleet) == ["up", "drained"])
            replicas.slow.add(2)
            fleet.rejoin(2)
            await until(lambda: replicas.num_starting == 1)
            with pytest.raises(InUseError, match="is starting"):
                fleet.drain(2)
            fleet.rejoin(2)
            assert states(fleet) == ["up", "starting"]
            assert replicas.num_starting == 1

    run(main)


def test_one_replica_whose_engine_keeps_dying_leaves_the_others_alone() -> None:
    async def main() -> None:
        replicas = FakeReplicas()
        async with fleet_of(replicas) as fleet:
            replicas.made[1].die(will_return=False)
            replicas.made[1].failed.set()
            await until(lambda: states(fleet) == ["failed", "up"])
            assert fleet.is_degraded
            assert not fleet.failed.is_set()
            fleet.rejoin(1)
            await until(lambda: states(fleet) == ["up", "up"])
            for number in (1, 2):
                replicas.made[number].die(will_return=False)
                replicas.made[number].failed.set()
            await fleet.failed.wait()

    run(main)


def test_an_engine_that_does_not_start_fails_the_fleet_with_its_error() -> None:
    async def main() -> None:
        replicas = FakeReplicas(fails=[AiciError("no such model")])
        with pytest.raises(AiciError, match="no such model"):
            async with fleet_of(replicas):
                pass
        assert replicas.num_running == 0

    run(main)


def test_an_engine_that_does_not_start_takes_the_starts_of_the_others_along() -> None:
    async def main() -> None:
        replicas = FakeReplicas(fails=[AiciError("no memory")], fails_from=2, slow={3})
        with pytest.raises(AiciError, match="no memory"):
            async with fleet_of(replicas, least=3):
                pass
        assert (replicas.num_running, replicas.num_starting) == (0, 0)

    run(main)


def test_waiting_streams_bring_another_replica_and_idleness_ends_it() -> None:
    async def main() -> None:
        replicas = FakeReplicas(scripts={1: [silent]})
        async with fleet_of(replicas, least=1, most=2, up_wait_s=0.0, up_after_s=0.0, down_after_s=0.4) as fleet:
            assert states(fleet) == ["up", "standby"]
            streams = [fleet.client.open(wire.Submit([number], GREEDY)) for number in range(4)]
            await until(lambda: states(fleet) == ["up", "up"])
            streams[0].abort()
            for stream in streams:
                await ended(stream) if stream.finish is None else None
            await until(lambda: fleet.replicas[1].state is ReplicaState.STANDBY or states(fleet) == ["standby", "up"])
            assert replicas.num_running == 1
            assert (await fleet.client.call("stats"))["replicas_up"] == 1

    run(main)


def test_figures_are_sums_and_means_of_those_that_answer() -> None:
    async def main() -> None:
        replicas = FakeReplicas()
        async with fleet_of(replicas) as fleet:
            figures = {"active_requests": 0, "cache_usage": 0.5, "tokens_generated": 3, "num_replicas": 2}
            assert await fleet.client.call("stats") == figures | {"replicas_up": 2}
            info = fleet.client.info
            assert info is not None
            assert (info.max_len, info.max_num_seqs) == (2048, 8)
            used: list[dict[str, float]] = []
            fleet.client.on_guest_time = used.append
            replicas.made[2].client.receive(wire.GuestTimeOut({"me": 1.0}))
            assert used == [{"me": 1.0}]
            replicas.made[1].die()
            assert (await fleet.client.call("stats"))["tokens_generated"] == 2
            assert fleet.client.num_restarts == 0
            replicas.made[1].come()
            assert fleet.client.num_restarts == 1

    run(main)
