"""`GET /stats/events`: one look for all listeners, only while there are any; engines that die and come back."""

import asyncio
import contextlib
import functools
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest

from aici_base.errors import RateLimitError, UnavailableError
from aici_engine.server.api.app import create_app
from aici_engine.server.api.engine_figures import EngineFigures
from aici_engine.server.api.state_feed import MAX_LISTENERS, MAX_LISTENERS_OF_KEY, StateFeed
from aici_engine.server.fleet.scaling import ScalingRules
from aici_engine.server.gateway.api_keys import Keys
from aici_engine.server.link import wire
from aici_engine.server.service.admission import Principal
from aici_engine.server.service.models import Models
from tests.engine.server.gateway.test_api_keys import key_file
from tests.engine.server.service.test_running_requests import KEYS, asking, client, hangs
from tests.support.engine_stats import engine_stats
from tests.support.fake_engine import FakeEngine
from tests.support.fake_models import fake_models
from tests.support.fake_replicas import FakeReplicas
from tests.support.fake_service import service_over
from tests.support.http import listening
from tests.support.pipeline_status import pipeline_status

ROOT = Principal(name="root")
STREAM = {"accept": "text/event-stream"}


def feed_over(engine: FakeEngine) -> StateFeed:
    return StateFeed(Models.of(service_over(engine)), interval_s=0.005)


def document(event: bytes) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(event.removeprefix(b"data: "))
    return found


def only_engine(event: dict[str, Any]) -> dict[str, Any]:
    [model] = event["models"]
    [engine] = model["engines"]
    assert isinstance(engine, dict)
    return engine


@contextlib.asynccontextmanager
async def heard(feed: StateFeed, principal: Principal = ROOT) -> AsyncIterator[AsyncIterator[dict[str, Any]]]:
    events = feed.events(lambda: principal)

    async def documents() -> AsyncIterator[dict[str, Any]]:
        async for event in events:
            yield document(event)

    async with contextlib.aclosing(events), asyncio.timeout(10):
        yield documents()


def test_the_figures_of_an_engine_and_its_rates() -> None:
    async def main() -> None:
        engine = FakeEngine(calls={"stats": engine_stats()})
        async with heard(feed_over(engine)) as events:
            first = await anext(events)
            figures = only_engine(first)["figures"]
            assert (figures["pages_used"], figures["pages"], figures["running"]) == (20, 80, 1)
            assert (figures["tokens_per_s"], figures["step_s"]) == (0.0, None)
            assert first["models"][0]["num_layers"] == 30
            engine.calls["stats"] = engine_stats(
                num_steps=14, step_seconds=1.4, forward_seconds=0.8, tokens_generated=110
            )
            async for event in events:
                figures = only_engine(event)["figures"]
                if figures["steps"] == 14:
                    break
            assert (figures["step_s"], figures["forward_s"]) == (0.1, 0.05)
            assert figures["tokens_per_s"] > 0

    asyncio.run(main())


def test_nothing_is_asked_without_listeners_and_once_for_all_of_them() -> None:
    async def main() -> None:
        engine = FakeEngine(calls={"stats": engine_stats()})
        feed = feed_over(engine)
        await asyncio.sleep(0.05)
        assert not engine.called
        async with contextlib.AsyncExitStack() as stack:
            for _ in range(5):
                await anext(await stack.enter_async_context(heard(feed)))
            assert feed.is_looking
        assert not feed.is_looking
        # `stats` at every look, `cluster` at the first alone: the engine has no pipeline.
        assert [call.method for call in engine.called].count("cluster") == 1
        num_calls = len(engine.called)
        await asyncio.sleep(0.05)
        assert len(engine.called) == num_calls

    asyncio.run(main())


def test_an_unchanged_state_is_not_sent_again() -> None:
    async def main() -> None:
        engine = FakeEngine(calls={"stats": engine_stats()})
        async with heard(feed_over(engine)) as events:
            await anext(events)
            following = asyncio.ensure_future(anext(events))
            await asyncio.sleep(0.1)
            assert not following.done()
            engine.calls["stats"] = engine_stats(active_requests=2)
            assert only_engine(await following)["figures"]["running"] == 2

    asyncio.run(main())


def test_an_engine_dies_and_comes_back() -> None:
    async def main() -> None:
        engine = FakeEngine(calls={"stats": engine_stats()})
        async with heard(feed_over(engine)) as events:
            assert only_engine(await anext(events))["state"] == "up"
            engine.client.lost(UnavailableError("gone"), will_return=True)
            dead = only_engine(await anext(events))
            assert (dead["state"], dead["figures"], dead["restarts"]) == ("restarting", None, 0)
            engine.calls["stats"] = engine_stats(num_steps=0, tokens_generated=0)
            engine.client.connected(engine, engine.info)
            back = only_engine(await anext(events))
            assert (back["state"], back["restarts"], back["figures"]["tokens_per_s"]) == ("up", 1, 0.0)

    asyncio.run(main())


class _Silent:
    """An engine that never answers."""

    info: wire.EngineInfo | None = None
    num_calls = 0

    async def call(self, method: str) -> Any:
        self.num_calls += 1
        await asyncio.Event().wait()


def test_an_engine_that_does_not_answer_is_asked_once() -> None:
    """The open question is the work by which the engine's watch notices that the engine hangs."""

    async def main() -> None:
        silent = _Silent()
        figures = EngineFigures(silent)
        for _ in range(3):
            done, _ = await asyncio.wait([figures.ask()], timeout=0.01)
            assert not done
        assert silent.num_calls == 1
        assert figures.fields() is None
        await figures.close()

    asyncio.run(main())


def test_stages_are_shown() -> None:
    async def main() -> None:
        engine = FakeEngine(calls={"stats": engine_stats(), "cluster": pipeline_status(epoch=1)})
        async with heard(feed_over(engine)) as events:
            assert (await anext(events))["models"][0]["pipeline"]["epoch"] == 1
            engine.calls["cluster"] = pipeline_status(epoch=2)
            assert (await anext(events))["models"][0]["pipeline"]["epoch"] == 2

    asyncio.run(main())


def test_listeners_are_bounded() -> None:
    async def main() -> None:
        feed = feed_over(FakeEngine(calls={"stats": engine_stats()}))
        async with contextlib.AsyncExitStack() as stack:
            for number in range(MAX_LISTENERS):
                principal = Principal(name=f"key{number // MAX_LISTENERS_OF_KEY}")
                await anext(await stack.enter_async_context(heard(feed, principal)))
                if number == MAX_LISTENERS_OF_KEY - 1:
                    with pytest.raises(RateLimitError):
                        await anext(feed.events(functools.partial(Principal, name="key0")))
            with pytest.raises(RateLimitError):
                await anext(feed.events(lambda: Principal(name="another")))
        assert not feed.is_looking
        async with heard(feed) as events:
            await anext(events)

    asyncio.run(main())


def test_a_key_sees_its_own_requests_and_the_stream_ends_with_the_server(tmp_path: Path) -> None:
    async def main() -> None:
        service = service_over(FakeEngine([hangs], calls={"stats": engine_stats()}))
        app = create_app(service, keys=Keys(key_file(tmp_path, KEYS)))
        async with (
            listening(app) as port,
            httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as http,
            asking(http, **{"api-key": "ann"}),
        ):
            seen: dict[str, list[dict[str, Any]]] = {}

            async def listen(name: str) -> None:
                async with http.stream("GET", "/stats/events", headers={"api-key": name, **STREAM}) as answer:
                    assert answer.headers["content-type"].startswith("text/event-stream")
                    lines = [json.loads(line[6:]) async for line in answer.aiter_lines() if line.startswith("data: ")]
                    seen[name] = lines

            listeners = [asyncio.create_task(listen(name)) for name in ("root", "ann", "bob")]
            await asyncio.sleep(0.1)
            service.admission.drain_begun.set()
            async with asyncio.timeout(10):
                await asyncio.gather(*listeners)
        assert {name: events[0]["num_requests"] for name, events in seen.items()} == {"root": 1, "ann": 1, "bob": 0}
        assert all(events[-1]["draining"] for events in seen.values())

    asyncio.run(main())


def test_a_stream_ends_when_its_key_is_revoked(tmp_path: Path) -> None:
    async def main() -> None:
        keys = Keys(path := key_file(tmp_path, KEYS))
        app = create_app(service_over(FakeEngine(calls={"stats": engine_stats()})), keys=keys)
        async with listening(app) as port, httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as http:

            async def listen(name: str) -> None:
                async with http.stream("GET", "/stats/events", headers={"api-key": name, **STREAM}) as answer:
                    heard_first.set()
                    async for _ in answer.aiter_lines():
                        pass

            heard_first = asyncio.Event()
            revoked = asyncio.create_task(listen("ann"))
            await heard_first.wait()
            heard_first.clear()
            kept = asyncio.create_task(listen("bob"))
            await heard_first.wait()
            path.write_text(KEYS.replace('key = "ann"', 'key = "another"'))
            keys.reload()
            async with asyncio.timeout(10):
                await revoked
            assert not kept.done()
            kept.cancel()

    asyncio.run(main())


def test_every_replica_has_figures_of_its_own() -> None:
    async def main() -> None:
        replicas = FakeReplicas()
        async with fake_models({"it": replicas.fleet(ScalingRules(least=2, most=2))}) as models, models.lease("it"):
            for number in (1, 2):
                replicas.made[number].engine.calls["stats"] = engine_stats(active_requests=number)
            async with heard(StateFeed(models, interval_s=0.005)) as events:
                [model] = (await anext(events))["models"]
                assert [each["figures"]["running"] for each in model["engines"]] == [1, 2]
                assert [each["threads"] for each in model["engines"]] == [1, 1]
                fleet = models.default.fleet
                assert fleet is not None
                fleet.drain(1)
                async for event in events:
                    [model] = event["models"]
                    if model["engines"][0]["state"] == "drained":
                        break
                assert model["engines"][0]["figures"] is None
                assert model["engines"][1]["figures"]["running"] == 2

    asyncio.run(main())


def test_one_state_for_a_script() -> None:
    async def main() -> None:
        service = service_over(FakeEngine([hangs], calls={"stats": engine_stats()}))
        async with client(service) as http, asking(http):
            state = (await http.get("/stats/events")).json()
            assert only_engine(state)["figures"]["pages"] == 80
            assert state["num_requests"] == len(state["requests"]) == 1

    asyncio.run(main())
