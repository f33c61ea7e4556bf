"""What operators see of replicas, and how they drain them."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2 as httpx

from aici_engine.server.api.app import create_app
from aici_engine.server.fleet.scaling import ScalingRules
from aici_engine.server.gateway.api_keys import Keys
from tests.engine.server.gateway.test_api_keys import ALICE, key_file
from tests.support.fake_engine import FakeEngine, says
from tests.support.fake_models import FakeEngines, fake_models
from tests.support.fake_replicas import FakeReplicas

Main = Callable[[httpx.AsyncClient, FakeReplicas], Awaitable[None]]
DRAIN = "/admin/replicas/1/drain"


@asynccontextmanager
async def serving(replicas: FakeReplicas, keys: Path | None) -> AsyncIterator[httpx.AsyncClient]:
    fleet = replicas.fleet(ScalingRules(least=2, most=2))
    single = FakeEngines(FakeEngine(calls={"stats": {}}))
    async with fake_models({"many": fleet, "one": single}) as models:
        await models.load_all()
        app = create_app(models, keys=Keys(keys))
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as http:
            yield http


def serve(main: Main, *, keys: Path | None = None) -> None:
    async def limited() -> None:
        async with asyncio.timeout(30):
            replicas = FakeReplicas(default=[says("Hello")])
            async with serving(replicas, keys) as http:
                await main(http, replicas)

    asyncio.run(limited())


async def states(http: httpx.AsyncClient) -> list[tuple[str, int, str]]:
    found: list[dict[str, Any]] = (await http.get("/replicas")).json()["replicas"]
    return [(each["model"], each["replica"], each["state"]) for each in found]


def test_every_model_shows_its_replicas() -> None:
    async def main(http: httpx.AsyncClient, _: FakeReplicas) -> None:
        body = {"model": "many", "prompt": "Once", "max_tokens": 1}
        assert (await http.post("/v1/completions", json=body)).status_code == 200
        assert await states(http) == [("many", 1, "up"), ("many", 2, "up"), ("one", 1, "up")]
        first = (await http.get("/replicas")).json()["replicas"][0]
        assert (first["requests"], first["open"], first["engine"]["tokens_generated"]) == (1, 0, 1)
        assert (await http.get("/stats?model=many")).json()["replicas_up"] == 2
        page = (await http.get("/metrics")).text
        assert 'aici_replica_requests_total{model="many",replica="1"} 1.0' in page
        assert 'aici_replica_up{model="many",replica="2"} 1.0' in page
        assert 'aici_replica_up{model="one"' not in page

    serve(main)


def test_a_dead_replica_is_named_and_the_server_stays_ready() -> None:
    async def main(http: httpx.AsyncClient, replicas: FakeReplicas) -> None:
        replicas.made[2].die()
        health = await http.get("/health")
        assert (health.status_code, health.json()["status"]) == (200, "degraded")
        assert health.json()["replicas"] == {"many": {"1": "up", "2": "restarting"}}
        assert (await http.get("/ready")).status_code == 200
        assert 'aici_replica_up{model="many",replica="2"} 0.0' in (await http.get("/metrics")).text
        replicas.made[2].come()
        assert (await http.get("/health")).json()["status"] == "ok"

    serve(main)


def test_a_replica_is_drained_and_rejoins() -> None:
    async def main(http: httpx.AsyncClient, _: FakeReplicas) -> None:
        assert (await http.post(DRAIN)).json()["state"] == "draining"
        refused = await http.post("/admin/replicas/2/drain")
        assert refused.status_code == 409
        assert "no other replica is up" in refused.text
        while ("many", 1, "drained") not in await states(http):
            await asyncio.sleep(0.01)
        health = await http.get("/health")
        assert health.json()["status"] == "ok", "the operator wanted it so"
        assert (await http.post("/admin/replicas/1/rejoin")).json()["state"] == "starting"
        while ("many", 1, "up") not in await states(http):
            await asyncio.sleep(0.01)
        assert (await http.post("/admin/replicas/3/drain")).status_code == 404
        alone = await http.post(f"{DRAIN}?model=one")
        assert alone.status_code == 400
        assert "has no replicas" in alone.text

    serve(main)


def test_only_administrators_drain(tmp_path: Path) -> None:
    async def main(http: httpx.AsyncClient, _: FakeReplicas) -> None:
        assert (await http.post(DRAIN)).status_code == 401
        assert (await http.get("/replicas")).status_code == 401
        refused = await http.post(DRAIN, headers={"api-key": "sk-bob"})
        assert refused.status_code == 403
        assert (await http.post(DRAIN, headers={"api-key": ALICE})).status_code == 200

    serve(main, keys=key_file(tmp_path))
