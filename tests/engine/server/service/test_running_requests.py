"""`/v1/requests`: the running requests of a key, and how one is stopped. `/v1/key`: what a key may do."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest

from aici_engine.server.api.app import create_app
from aici_engine.server.gateway.api_keys import Keys
from aici_engine.server.link import wire
from aici_engine.server.service.service import Service
from tests.engine.server.gateway.test_api_keys import key_file
from tests.support.fake_engine import FakeEngine, forked, says
from tests.support.fake_service import service_over

KEYS = """
[keys.root]
key = "root"
admin = true

[keys.ann]
key = "ann"
controllers = ["regex"]
tokens_per_minute = 1000

[keys.bob]
key = "bob"
upload = false
"""


def hangs(submit: wire.Submit) -> Iterable[wire.StreamOut]:
    """After two tokens."""
    yield wire.AcceptedOut(submit.stream)
    for token in (1, 2):
        yield wire.TokenOut(submit.stream, token, b"x", "x", False, None, [])


def client(service: Service, tmp_path: Path | None = None) -> httpx.AsyncClient:
    keys = None if tmp_path is None else Keys(key_file(tmp_path, KEYS))
    return httpx.AsyncClient(transport=httpx.ASGITransport(create_app(service, keys=keys)), base_url="http://it")


async def listed(http: httpx.AsyncClient, **headers: str) -> list[dict[str, Any]]:
    answer = await http.get("/v1/requests", headers=headers)
    assert answer.status_code == 200
    requests: list[dict[str, Any]] = answer.json()["requests"]
    return requests


@contextlib.asynccontextmanager
async def asking(
    http: httpx.AsyncClient, path: str = "/v1/completions", **headers: str
) -> AsyncIterator["asyncio.Task[httpx.Response]"]:
    """A request that runs, until it is stopped or the context ends."""
    body = {"model": "it", "prompt": "Once upon"} if path == "/v1/completions" else {"controller": "none"}
    before = len(await listed(http, **headers))
    task = asyncio.create_task(http.post(path, json=body, headers=headers))
    async with asyncio.timeout(10):
        while len(await listed(http, **headers)) == before:
            await asyncio.sleep(0)
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def test_a_running_request_is_listed_until_it_ends() -> None:
    async def main() -> None:
        engine = FakeEngine([hangs])
        async with client(service := service_over(engine)) as http:
            async with asking(http, **{"x-request-id": "mine"}):
                [request] = await listed(http)
                assert (request["model"], request["key"], request["request_id"]) == ("it", "localhost", "mine")
                assert (request["state"], request["prompt_tokens"], request["output_tokens"]) == ("running", 2, 2)
            assert await listed(http) == []
            engine.scripts = [says("Hello")]
            assert (await http.post("/v1/completions", json={"model": "it", "prompt": "Once"})).status_code == 200
            assert await listed(http) == []
            assert service.admission.num_admitted == 0

    asyncio.run(main())


def test_forks_count_and_end_with_their_request() -> None:
    async def main() -> None:
        engine = FakeEngine([forked])
        async with client(service := service_over(engine)) as http:
            await http.post("/v1/run", json={"controller": "none", "controller_arg": "Once"})
            assert engine.submitted
            assert await listed(http) == []
            assert service.admission.running.seen_by(_Root()) == []

    asyncio.run(main())


class _Root:
    name, is_admin = "root", True


@pytest.mark.parametrize("stopper", ["ann", "root"])
def test_a_stopped_request_ends_with_an_error_that_no_client_retries(stopper: str, tmp_path: Path) -> None:
    async def main() -> None:
        engine = FakeEngine([hangs])
        async with (
            client(service := service_over(engine), tmp_path) as http,
            asking(http, **{"api-key": "ann"}) as task,
        ):
            [request] = await listed(http, **{"api-key": stopper})
            stopped = await http.delete(f"/v1/requests/{request['id']}", headers={"api-key": stopper})
            assert (stopped.status_code, stopped.json()["state"]) == (200, "stopped")
            answer = await task
            assert answer.status_code == 410
            error = answer.json()["error"]
            assert error["code"] == "stopped"
            assert ("by an administrator" in error["message"]) == (stopper == "root")
            assert len(engine.aborted) == 1
            assert await listed(http, **{"api-key": "root"}) == []
            assert service.admission.num_admitted == 0
            again = await http.delete(f"/v1/requests/{request['id']}", headers={"api-key": stopper})
            assert again.status_code == 404

    asyncio.run(main())


def test_a_key_neither_sees_nor_stops_the_requests_of_another(tmp_path: Path) -> None:
    async def main() -> None:
        async with (
            client(service_over(FakeEngine([hangs])), tmp_path) as http,
            asking(http, **{"api-key": "ann"}) as task,
        ):
            [request] = await listed(http, **{"api-key": "ann"})
            assert await listed(http, **{"api-key": "bob"}) == []
            stopped = await http.delete(f"/v1/requests/{request['id']}", headers={"api-key": "bob"})
            assert stopped.status_code == 404
            assert not task.done()

    asyncio.run(main())


def test_what_a_key_may_do(tmp_path: Path) -> None:
    async def main() -> None:
        async with client(service_over(FakeEngine()), tmp_path) as http:
            told = {
                name: (await http.get("/v1/key", headers={"api-key": name})).json() for name in ("root", "ann", "bob")
            }
            assert [each["admin"] for each in told.values()] == [True, False, False]
            assert [each["upload"] for each in told.values()] == [True, True, False]
            assert [each["controllers"] for each in told.values()] == [None, ["regex"], None]
            assert told["ann"]["limits"]["tokens_per_minute"] == 1000
            assert (await http.get("/v1/key")).status_code == 401
        async with client(service_over(FakeEngine())) as http:
            told = (await http.get("/v1/key")).json()
            assert (told["admin"], told["upload"], told["own_controllers"]) == (True, True, False)

    asyncio.run(main())
