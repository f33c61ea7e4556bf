"""Loading of models: who waits, in which order, for how long; and what one model's end does to the others."""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, ParamSpec

import pytest

from aici_base.errors import RateLimitError, UnavailableError, UsageError
from aici_engine.server.config import ModelLoading
from aici_engine.server.errors import UnknownModelError
from aici_engine.server.link import wire
from aici_engine.server.service.admission import Principal
from aici_engine.server.service.models import Models
from tests.support.fake_engine import FakeEngine
from tests.support.fake_models import FakeEngines, fake_models

_P = ParamSpec("_P")


def run(test: Callable[_P, Coroutine[Any, Any, None]]) -> Callable[_P, None]:
    @wraps(test)
    def running(*args: _P.args, **kwargs: _P.kwargs) -> None:
        async def limited() -> None:
            async with asyncio.timeout(60):
                await test(*args, **kwargs)

        asyncio.run(limited())

    return running


def states(models: Models) -> list[str]:
    return [model.state.value for model in models.all]


async def settle() -> None:
    """Let every task run until it waits for something that only the test does."""
    for _ in range(20):
        await asyncio.sleep(0)


@run
async def test_a_model_is_loaded_once_and_only_when_a_request_needs_it() -> None:
    a, b = FakeEngines(), FakeEngines()
    async with fake_models({"a": a, "b": b}) as models:
        assert (states(models), models.default.max_len) == (["unloaded", "unloaded"], None)
        for _ in range(2):
            async with models.lease("b") as service:
                assert (service.name, service.client) == ("b", b.client)
        assert (a.num_starts, b.num_starts, states(models)) == (0, 1, ["unloaded", "loaded"])
        assert models.find("b").max_len == b.engine.info.max_len
    assert (b.num_running, states(models)) == (0, ["unloaded", "unloaded"])


@run
async def test_names_aliases_and_strangers() -> None:
    async with fake_models({"a": FakeEngines(), "b": FakeEngines()}, aliases={"gpt-4o": "b"}) as models:
        found = [models.find(name).name for name in (None, "default", "a", "b", "gpt-4o", str(models.all[1].model_dir))]
        assert found == ["a", "a", "a", "b", "b", "b"]
        for stranger in ("", "c", "A", "gpt-4o "):
            with pytest.raises(UnknownModelError, match="not served here") as error:
                models.find(stranger)
            assert error.value.hint == "this server serves a, b"


@run
async def test_requests_wait_in_their_order() -> None:
    slow = FakeEngines()
    slow.gate.clear()
    begun: list[int] = []

    async def ask(number: int) -> None:
        async with models.lease("a"):
            begun.append(number)

    async with fake_models({"a": slow}) as models:
        async with asyncio.TaskGroup() as group:
            for number in range(6):
                group.create_task(ask(number))
            await settle()
            assert (states(models), begun, models.default.num_users) == (["loading"], [], 6)
            slow.gate.set()
        assert (begun, slow.num_starts) == (list(range(6)), 1)


@run
async def test_who_waits_has_a_limit_in_number_and_in_time() -> None:
    slow = FakeEngines()
    slow.gate.clear()
    async with fake_models({"a": slow}, capacity=2, loading=ModelLoading(timeout_s=0.01)) as models:
        async with asyncio.TaskGroup() as group:
            waiting = [
                group.create_task(_refused(models, UnavailableError, "not there after 0.01 s: it is still loading"))
                for _ in range(2)
            ]
            await asyncio.sleep(0)
            await _refused(models, RateLimitError, "queue is full")
        assert all(task.done() for task in waiting)
        # The load goes on: who asks later finds it.
        slow.gate.set()
        async with models.lease("a"):
            assert slow.num_starts == 1


async def _refused(models: Models, kind: type[Exception], said: str) -> None:
    with pytest.raises(kind, match=said):
        async with models.lease("a"):
            raise AssertionError("the model cannot be loaded")


@run
async def test_a_client_that_leaves_while_it_waits_ends_no_load() -> None:
    slow = FakeEngines()
    slow.gate.clear()

    async def ask() -> str:
        async with models.lease("a") as service:
            return service.name

    async with fake_models({"a": slow}) as models:
        leaving, staying = asyncio.create_task(ask()), asyncio.create_task(ask())
        await settle()
        leaving.cancel()
        await settle()
        slow.gate.set()
        assert await staying == "a"
        assert (leaving.cancelled(), slow.num_starts, models.default.num_users) == (True, 1, 0)


@run
async def test_a_load_that_fails_is_nobodys_request() -> None:
    broken = FakeEngines(fails=[UsageError("config.json has no layers")])
    async with fake_models({"a": broken}) as models:
        await _refused(models, UnavailableError, "a cannot be loaded: config.json has no layers")
        assert (states(models), models.default.num_users) == (["unloaded"], 0)
        async with models.lease("a"):  # the next request tries again
            assert broken.num_starts == 2


@run
async def test_a_start_with_several_models_names_the_one_that_fails() -> None:
    good, broken = FakeEngines(), FakeEngines(fails=[UsageError("config.json has no layers")])
    async with fake_models({"a": good, "b": broken}) as models:
        with pytest.raises(UsageError, match=r"the model b: config\.json has no layers"):
            await models.load_all()
    assert good.num_running == 0


@run
async def test_a_model_that_keeps_dying_leaves_the_others_alone() -> None:
    a, b = FakeEngines(), FakeEngines()
    async with fake_models({"a": a, "b": b}) as models:
        await models.load_all()
        a.failed.set()
        await settle()
        assert (states(models), models.all_failed.is_set()) == (["failed", "loaded"], False)
        await _refused(models, UnavailableError, "the engine of the model a keeps dying")
        async with models.lease("b"):
            assert b.num_running == 1
        b.failed.set()
        await settle()
        assert (states(models), models.all_failed.is_set()) == (["failed", "failed"], True)


@run
async def test_the_end_of_the_server_ends_waiting_and_loading() -> None:
    slow = FakeEngines()
    slow.gate.clear()
    async with fake_models({"a": slow}) as models:
        async with asyncio.TaskGroup() as group:
            group.create_task(_refused(models, UnavailableError, "the server is stopping"))
            await settle()
            models.admission.drain_begun.set()
            models.stop_loading()
        await _refused(models, UnavailableError, "the server is stopping")
        assert states(models) == ["unloaded"]


@run
async def test_the_models_share_the_keys_limits_and_not_the_queue() -> None:
    alice = Principal(name="alice", max_concurrency=2, requests_per_minute=1)
    async with fake_models({"a": FakeEngines(), "b": FakeEngines()}, capacity=2) as models:
        first, second = (model.admission for model in models.all)
        async with contextlib.AsyncExitStack() as stack:
            await stack.enter_async_context(first.admit(alice, 1))
            await stack.enter_async_context(second.admit(alice, 1))
            with pytest.raises(RateLimitError, match="alice may have 2 sequences"):
                await stack.enter_async_context(second.admit(alice, 1))
            await stack.enter_async_context(first.admit(Principal(), 1))
            with pytest.raises(RateLimitError, match="the queue is full"):
                await stack.enter_async_context(first.admit(Principal(), 1))
            await stack.enter_async_context(second.admit(Principal(), 1))
            assert models.num_admitted == 4
        await first.count(alice)
        with pytest.raises(RateLimitError, match="1 requests a minute"):
            await second.count(alice)
        first.drain_begun.set()
        assert second.draining


def sized(num_bytes: int, planned: int | None = None) -> FakeEngines:
    engine = FakeEngine(info=wire.EngineInfo(49152, 2048, 4, memory_bytes=num_bytes))
    return FakeEngines(engine, planned_bytes=num_bytes if planned is None else planned)


async def use(models: Models, *names: str) -> None:
    for name in names:
        async with models.lease(name) as service:
            assert service.name == name


@run
async def test_the_least_recently_used_idle_model_makes_room() -> None:
    engines = {name: sized(40) for name in "abc"}
    async with fake_models(engines, loading=ModelLoading(memory_bytes=100)) as models:
        await use(models, "a", "b", "a", "c")
        assert states(models) == ["loaded", "unloaded", "loaded"]
        async with models.lease("a"):
            await use(models, "b")  # "a" was used longest ago, but is in use
            assert states(models) == ["loaded", "loaded", "unloaded"]
        assert [each.num_starts for each in engines.values()] == [1, 2, 1]
        assert sum(each.num_running for each in engines.values()) == 2


@run
async def test_a_request_waits_until_a_model_is_idle() -> None:
    a, b = sized(80), sized(80)
    async with fake_models({"a": a, "b": b}, loading=ModelLoading(memory_bytes=100)) as models:
        async with models.lease("a"):
            waiting = asyncio.create_task(use(models, "b"))
            await settle()
            assert (states(models), b.num_starts) == (["loaded", "loading"], 0)
            await use(models, "a")  # a second user that leaves does not make the model idle
            await settle()
            assert b.num_starts == 0
        await waiting
        assert (states(models), a.num_running) == (["unloaded", "loaded"], 0)


@run
async def test_nobody_is_unloaded_for_requests_that_have_left() -> None:
    a, b = sized(80), sized(80)
    async with fake_models({"a": a, "b": b}, loading=ModelLoading(memory_bytes=100)) as models:
        async with models.lease("a"):
            waiting = asyncio.create_task(use(models, "b"))
            await settle()
            waiting.cancel()
            await settle()
        await settle()
        assert states(models) == ["loaded", "unloaded"]
        await use(models, "b", "a")


@run
async def test_plans_are_corrected_by_what_a_model_takes() -> None:
    """The files of a model may tell more than it takes, and less."""
    engines = {"a": sized(30, planned=100), "b": sized(30, planned=60), "c": sized(120, planned=60)}
    async with fake_models(engines, loading=ModelLoading(memory_bytes=100)) as models:
        await use(models, "a", "b")
        assert states(models) == ["loaded", "loaded", "unloaded"]
        with pytest.raises(UnavailableError, match="c takes 0 MiB: all models may take 0 MiB together"):
            await use(models, "c")
        assert engines["c"].num_running == 0
        await use(models, "a", "b")


@run
async def test_a_start_loads_the_models_that_fit() -> None:
    engines = {"a": sized(60), "b": sized(60), "c": sized(30)}
    async with fake_models(engines, loading=ModelLoading(memory_bytes=100)) as models:
        await models.load_all()
        assert states(models) == ["loaded", "unloaded", "loaded"]


@run
async def test_a_model_that_is_not_used_is_unloaded() -> None:
    a, b = FakeEngines(), FakeEngines()
    async with fake_models({"a": a, "b": b}, loading=ModelLoading(unload_after_s=0.05)) as models:
        await models.load_all()
        async with models.lease("b"):
            while models.default.service is not None:
                await asyncio.sleep(0.01)
            assert (states(models), b.num_running) == (["unloaded", "loaded"], 1)
        while models.all[1].service is not None:
            await asyncio.sleep(0.01)
        await use(models, "b")
        assert b.num_starts == 2
