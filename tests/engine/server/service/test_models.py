"""Loading of models: who waits, in which order, for how long; and what one model's end does to the others."""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, ParamSpec

import pytest

from aici_base.errors import RateLimitError, UnavailableError, UsageError
from aici_engine.server.errors import UnknownModelError
from aici_engine.server.service.admission import Principal
from aici_engine.server.service.models import Models
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
    async with fake_models({"a": slow}, capacity=2, load_timeout_s=0.01) as models:
        async with asyncio.TaskGroup() as group:
            waiting = [group.create_task(_refused(models, UnavailableError, "still loading")) for _ in range(2)]
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
        with contextlib.ExitStack() as stack:
            stack.enter_context(first.admit(alice, 1))
            stack.enter_context(second.admit(alice, 1))
            with pytest.raises(RateLimitError, match="alice may have 2 sequences"):
                stack.enter_context(second.admit(alice, 1))
            stack.enter_context(first.admit(Principal(), 1))
            with pytest.raises(RateLimitError, match="the queue is full"):
                stack.enter_context(first.admit(Principal(), 1))
            stack.enter_context(second.admit(Principal(), 1))
            assert models.num_admitted == 4
        first.count(alice)
        with pytest.raises(RateLimitError, match="1 requests a minute"):
            second.count(alice)
        first.drain_begun.set()
        assert second.draining
