"""From the client through the wire to a real engine and back."""

import asyncio
import queue
from pathlib import Path

import pytest

from aici_base.errors import AiciError, NotFoundError, UnavailableError, UsageError
from aici_base.ids import TokenId
from aici_engine.config import EngineConfig, SamplingParams
from aici_engine.engine import Engine
from aici_engine.events import FinishReason
from aici_engine.server.engine_process.engine_server import EngineServer
from aici_engine.server.link import wire
from aici_engine.server.link.client import EngineClient
from aici_engine.server.link.stream import EngineStream
from tests.engine.server.conftest import joined
from tests.engine.support import Guest, ScriptedRuntime, encode

GREEDY = SamplingParams(temperature=0.0, max_tokens=24)


def config(model: Path) -> EngineConfig:
    return EngineConfig(model_dir=model, num_pages=64, page_size=4, max_num_seqs=8, max_batch_tokens=32)


async def text_of(stream: EngineStream) -> str:
    text = ""
    async for event in stream:
        if isinstance(event, wire.TokenOut):
            text += event.text
        elif isinstance(event, wire.FinishOut):
            text += event.tail
    return text


def test_concurrent_streams_carry_the_engines_events(tiny_model: Path) -> None:
    prompts = ["a", "Hello", "Zebra crossing", "1 2 3", "end."]
    with Engine(config(tiny_model)) as engine:
        wanted = engine.generate(prompts, temperature=0.0, max_tokens=24)

    async def talk() -> None:
        async with joined(config(tiny_model)) as client:
            streams = [client.open(wire.Submit(list(map(int, encode(prompt))), GREEDY)) for prompt in prompts]
            assert list(await asyncio.gather(*map(text_of, streams))) == wanted
            for stream, prompt in zip(streams, prompts, strict=True):
                assert stream.finish is not None
                assert stream.finish.usage.prompt == len(prompt)
                assert stream.finish.usage.output <= 24
            stats = await client.call("stats")
            assert stats["total_requests"] == 5

    asyncio.run(talk())


def test_leaving_a_stream_ends_it(tiny_model: Path) -> None:
    async def talk() -> None:
        async with joined(config(tiny_model)) as client:
            endless = SamplingParams(temperature=0.0, ignore_eos=True)
            async with client.open(wire.Submit([5], endless)) as stream:
                async for _ in stream:
                    break
            async for _ in stream:
                pass
            assert stream.finish is not None
            assert stream.finish.reason is FinishReason.ABORT
            client.abort(stream.number)
            client.abort(999)

    asyncio.run(talk())


def test_a_refused_request_fails_its_stream_alone(tiny_model: Path) -> None:
    async def talk() -> None:
        async with joined(config(tiny_model)) as client:
            bad, good = client.open(wire.Submit([7000], GREEDY)), client.open(wire.Submit([7], GREEDY))
            await text_of(bad)
            assert bad.finish is not None
            assert bad.finish.failure is not None
            error = bad.finish.failure.error()
            assert isinstance(error, UsageError)
            assert "token 7000" in error.message
            await text_of(good)
            assert good.finish is not None
            assert good.finish.failure is None

    asyncio.run(talk())


def test_scores_bias_and_log_probabilities_travel(tiny_model: Path) -> None:
    async def talk() -> None:
        async with joined(config(tiny_model)) as client:
            sampling = SamplingParams(temperature=0.0, max_tokens=3, logit_bias={65: 100.0}, logprobs=2)
            stream = client.open(wire.Submit([1, 2, 3], sampling, score_from=1))
            events = [event async for event in stream]
            scores = next(event for event in events if isinstance(event, wire.ScoreOut)).scores
            assert [token for token, _, _ in scores] == [2, 3]
            assert all(logprob is not None and logprob < 0 for _, logprob, _ in scores)
            tokens = [event for event in events if isinstance(event, wire.TokenOut)]
            assert [(event.token, event.data, event.forced) for event in tokens] == [(65, b"A", False)] * 3
            assert all(event.logprob is not None and len(event.top) == 2 for event in tokens)

    asyncio.run(talk())


class Short(Guest):
    """A model that blocks after the second token."""

    def post(self, tokens: list[TokenId], backtrack: int) -> bool:
        super().post(tokens, backtrack)
        return len(self.told) == 2


def test_controllers_and_their_failures(tiny_model: Path) -> None:
    async def talk() -> None:
        async with joined(config(tiny_model), runtime=ScriptedRuntime({"short": Short})) as client:
            good = client.open(wire.Submit([1], GREEDY, controller="short", argument={"any": ["json", 1]}))
            unknown = client.open(wire.Submit([1], GREEDY, controller="nobody"))
            await asyncio.gather(text_of(good), text_of(unknown))
            assert good.finish is not None
            assert good.finish.reason is FinishReason.STOP
            assert unknown.finish is not None
            assert unknown.finish.failure is not None
            assert isinstance(unknown.finish.failure.error(), NotFoundError)

    asyncio.run(talk())


def test_a_value_without_a_msgpack_form_is_refused(tiny_model: Path) -> None:
    async def talk() -> None:
        async with joined(config(tiny_model), runtime=ScriptedRuntime({"short": Short})) as client:
            for stream in (
                client.open(wire.Submit([1], SamplingParams(max_tokens=1, stop=("\ud800",)))),
                client.open(wire.Submit([1], SamplingParams(max_tokens=1, seed=1 << 70))),
                client.open(wire.Submit([1], GREEDY, controller="short", argument="\ud800")),
            ):
                await text_of(stream)
                assert stream.finish is not None
                assert stream.finish.failure is not None
                assert isinstance(stream.finish.failure.error(), UsageError)

    asyncio.run(talk())


def test_every_call_gets_a_reply(tiny_model: Path) -> None:
    async def talk() -> None:
        async with joined(config(tiny_model)) as client:
            assert (await client.call("stats"))["active_requests"] == 0
            with pytest.raises(AiciError, match="no method"):
                await client.call("dance")

    asyncio.run(talk())


def test_a_failed_engine_gets_no_further_requests(tiny_model: Path) -> None:
    """`handle` raises, so the process ends and the supervisor starts a new process."""
    host = ScriptedRuntime({"guest": Guest})
    host.breaks_at_round = 2
    sent: queue.SimpleQueue[wire.FromEngine] = queue.SimpleQueue()

    def end() -> wire.FinishOut:
        while not isinstance(message := sent.get(timeout=20), wire.FinishOut):
            pass
        return message

    with Engine(config(tiny_model), runtime=host) as engine:
        server = EngineServer(engine, send=sent.put, flush=lambda: None)
        server.handle(wire.Submit([1], GREEDY, "guest", stream=1))
        ends = [end()]
        with pytest.raises(AiciError, match="the engine failed: KeyError"):
            server.handle(wire.Submit([1], GREEDY, stream=2))
        ends.append(end())
        server.close()
    assert [(end.stream, end.failure is None) for end in ends] == [(1, False), (2, False)]


def test_a_lost_engine_fails_everything_and_another_serves_on() -> None:
    class Deaf:
        def send(self, message: wire.ToEngine) -> None: ...

    async def talk() -> None:
        client = EngineClient()
        with pytest.raises(UnavailableError, match="not up"):
            client.open(wire.Submit([1], GREEDY))
        client.connected(Deaf(), wire.EngineInfo(10, 10, 1))
        stream = client.open(wire.Submit([1, 2], GREEDY))
        call = asyncio.ensure_future(client.call("stats"))
        await asyncio.sleep(0)
        client.lost(UnavailableError("gone"))
        assert await text_of(stream) == ""
        assert stream.finish is not None
        assert stream.finish.failure == wire.Failure("unavailable", "gone")
        with pytest.raises(UnavailableError, match="gone"):
            await call
        assert not client.is_ready
        client.connected(Deaf(), wire.EngineInfo(10, 10, 1))
        assert client.is_ready

    asyncio.run(talk())
