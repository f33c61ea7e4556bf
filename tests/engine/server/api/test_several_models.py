"""Several models behind one address: every protocol finds a model by its name, and a response keeps it loaded."""

import asyncio
import json
from typing import Any

import anthropic
import httpx2 as httpx
import openai
import pytest
from starlette.testclient import TestClient

from aici_engine.server.api.app import create_app
from aici_engine.server.service.models import Models
from tests.support.fake_engine import FakeEngine, says, silent
from tests.support.fake_models import FakeEngines, fake_models
from tests.support.websocket import Socket

Json = dict[str, Any]
MESSAGES = [{"role": "user", "content": "hi"}]
REQUESTS: dict[str, tuple[str, Json]] = {
    "chat": ("/v1/chat/completions", {"messages": MESSAGES}),
    "completions": ("/v1/completions", {"prompt": "hi"}),
    "responses": ("/v1/responses", {"input": "hi", "store": False}),
    "anthropic": ("/v1/messages", {"messages": MESSAGES, "max_tokens": 5}),
    "rest": ("/v1/run", {"controller": "none", "controller_arg": "hi"}),
    "tokenize": ("/tokenize", {"prompt": "hi"}),
    "detokenize": ("/detokenize", {"tokens": [1, 2]}),
    "count": ("/v1/messages/count_tokens", {"messages": MESSAGES}),
    "input tokens": ("/v1/responses/input_tokens", {"input": "hi"}),
}
GENERATING = ("chat", "completions", "responses", "anthropic", "rest")


@pytest.fixture
def engines() -> dict[str, FakeEngines]:
    return {name: FakeEngines(FakeEngine([says(f"of {name}")], calls={"stats": {}})) for name in ("a", "b")}


@pytest.fixture
def models(engines: dict[str, FakeEngines]) -> Models:
    return fake_models(engines, aliases={"gpt-4o": "b", "claude-any": "b"})


@pytest.fixture
def http(models: Models) -> TestClient:
    return TestClient(create_app(models), raise_server_exceptions=False)


@pytest.mark.parametrize("name", ["a", "b", "gpt-4o"])
@pytest.mark.parametrize("which", GENERATING)
def test_every_protocol_finds_the_model(
    http: TestClient, engines: dict[str, FakeEngines], which: str, name: str
) -> None:
    path, body = REQUESTS[which]
    answer = http.post(path, json={**body, "model": name})
    assert answer.status_code == 200, answer.text
    served, other = ("a", "b") if name == "a" else ("b", "a")
    assert f"of {served}" in answer.text
    assert f'"model":"{served}"' in answer.text.replace('": "', '":"')
    assert (len(engines[served].engine.submitted), engines[other].num_starts) == (1, 0)


@pytest.mark.parametrize("which", REQUESTS)
def test_an_unknown_name_is_not_found(http: TestClient, engines: dict[str, FakeEngines], which: str) -> None:
    path, body = REQUESTS[which]
    answer = http.post(path, json={**body, "model": "gpt-5"})
    assert answer.status_code == 404, answer.text
    assert "the model gpt-5 is not served here" in answer.text
    assert not any(each.num_starts for each in engines.values())


def test_the_official_clients_list_and_name_models(http: TestClient) -> None:
    with (
        openai.OpenAI(http_client=http, base_url="http://aici/v1", api_key="none", max_retries=0) as gpt,
        anthropic.Anthropic(http_client=http, base_url="http://aici", api_key="none", max_retries=0) as claude,
    ):
        assert [model.id for model in gpt.models.list()] == ["a", "b"]
        assert gpt.models.retrieve("gpt-4o").id == "b"
        assert [(model.id, model.display_name) for model in claude.models.list()] == [("a", "a"), ("b", "b")]
        assert claude.models.retrieve("claude-any").id == "b"
        told = claude.messages.create(model="claude-any", max_tokens=5, messages=[{"role": "user", "content": "hi"}])
        assert told.model == "b"
        with pytest.raises(openai.NotFoundError) as unknown:
            gpt.chat.completions.create(model="gpt-5", messages=[{"role": "user", "content": "hi"}])
        assert unknown.value.code == "model_not_found"
        with pytest.raises(anthropic.NotFoundError, match="gpt-5 is not served here"):
            claude.messages.create(model="gpt-5", max_tokens=5, messages=[{"role": "user", "content": "hi"}])


def test_the_states_are_shown(http: TestClient) -> None:
    http.post("/v1/completions", json={"prompt": "hi", "model": "b"})
    listed = {model["id"]: model for model in http.get("/v1/models").json()["data"]}
    assert (listed["a"]["state"], listed["a"]["max_model_len"]) == ("unloaded", None)
    assert (listed["b"]["state"], listed["b"]["max_model_len"]) == ("loaded", 2048)
    assert listed["b"]["aliases"] == ["gpt-4o", "claude-any"]
    assert http.get("/health").json() == {
        "status": "ok",
        "model_loaded": True,
        "models": {"a": "unloaded", "b": "loaded"},
    }
    assert http.get("/ready").status_code == 200
    figures = http.get("/metrics").text.splitlines()
    for line in (
        'aici_engine_up{model="a"} 0.0',
        'aici_engine_up{model="b"} 1.0',
        'aici_model_loads_total{model="b"} 1.0',
        'aici_sequences_total{model="b",reason="eos"} 1.0',
    ):
        assert line in figures
    assert http.get("/stats", params={"model": "b"}).json()["model_loads"] == 1
    assert http.get("/stats").json()["model_loads"] == 0
    assert http.get("/stats", params={"model": "c"}).status_code == 404
    [interval] = http.get("/stats/history", params={"model": "b"}).json()["intervals"]
    assert (interval["ended"], interval["first_token_s"]["p50"] is None) == (1, False)
    assert http.get("/stats/history").json() == {"model": "a", "interval_s": 5, "intervals": []}


def test_one_dead_engine_is_not_the_other_ones(http: TestClient, engines: dict[str, FakeEngines]) -> None:
    for name in ("a", "b"):
        http.post("/v1/completions", json={"prompt": "hi", "model": name})
    engines["a"].client._link = None
    health = http.get("/health")
    assert (health.status_code, health.json()["status"]) == (200, "degraded")
    assert health.json()["models"] == {"a": "restarting", "b": "loaded"}
    assert http.get("/ready").status_code == 200
    answers = [http.post("/v1/completions", json={"prompt": "hi", "model": name}) for name in ("a", "b")]
    assert [answer.status_code for answer in answers] == [503, 200]
    engines["b"].client._link = None
    assert http.get("/health").status_code == 503
    assert http.get("/ready").status_code == 503


def test_a_stream_keeps_its_model() -> None:
    async def main() -> None:
        engine = FakeEngines(FakeEngine([silent]))
        models = fake_models({"a": engine})
        transport = httpx.ASGITransport(create_app(models))
        async with asyncio.timeout(30), httpx.AsyncClient(transport=transport, base_url="http://aici") as client:
            body = {"prompt": "hi", "model": "a", "stream": True}
            asking = asyncio.create_task(client.post("/v1/completions", json=body))
            while not engine.engine.submitted:
                await asyncio.sleep(0)
            assert models.default.num_users == 1
            engine.client.abort(engine.engine.submitted[0].stream)
            await asking
            assert models.default.num_users == 0

    asyncio.run(main())


def test_lmtp_finds_the_model_and_keeps_its_buffers_apart(models: Models, engines: dict[str, FakeEngines]) -> None:
    async def main() -> None:
        async with asyncio.timeout(30), Socket(create_app(models), "/lmtp?greeting=1") as socket:

            async def ask(command: str, **fields: Any) -> Json:
                await socket.send(f"{command} {json.dumps({'stream_id': 1, **fields})}")
                items: list[Json] = json.loads((await socket.receive()).partition(" ")[2])
                return items[0]

            greeting = json.loads((await socket.receive()).partition(" ")[2])[0]
            assert (greeting["event"], greeting["model_info"]["model"]) == ("ready", "a")
            assert (await ask("MODEL_INFO", model="llama.cpp:gpt-4o"))["model_info"]["model"] == "b"
            assert (engines["a"].num_starts, engines["b"].num_starts) == (0, 1)
            assert "not served here" in (await ask("MODEL_INFO", model="c"))["error"]
            await ask("BUFFER", buffer="x", prompt="some text", model="b")
            prompt = [{"buffer": "x"}]
            assert "no buffer 'x'" in (await ask("GENERATE", model="a", prompt=prompt, max_tokens=1))["error"]
            said = await ask("GENERATE", model="b", prompt=prompt, max_tokens=1)
            assert "error" not in said
            assert len(engines["b"].engine.submitted) == 1

    asyncio.run(main())
