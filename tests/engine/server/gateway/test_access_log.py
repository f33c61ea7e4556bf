"""Request ids, access-log lines and metrics, and the response to a bug."""

import asyncio
import json
import logging
from collections.abc import Sequence

import httpx2 as httpx
import pytest
from fastapi import Depends, FastAPI

from aici_engine.events import FinishReason
from aici_engine.server.api.app import create_app
from aici_engine.server.gateway.access_log import Observer
from aici_engine.server.gateway.caller import caller
from aici_engine.server.link import wire
from aici_engine.server.service.admission import Principal
from aici_engine.server.service.service import Generation
from aici_engine.server.telemetry import logs
from aici_engine.server.telemetry.logs import JsonFormatter, TextFormatter
from aici_engine.server.telemetry.metrics import Metrics, StreamWatch
from tests.support.fake_engine import FakeEngine, says
from tests.support.fake_service import service_over

STATS = {"active_requests": 1, "waiting_requests": 2, "total_requests": 3, "cache_usage": 0.5, "tokens_generated": 4}


def make_app(*, observers: Sequence[Observer] = ()) -> FastAPI:
    engine = FakeEngine([says("Hello", " there", num_cached=1)], calls={"stats": STATS})
    service = service_over(engine)
    app = create_app(service, observers=observers)

    @app.get("/bug")
    async def bug() -> None:
        raise ZeroDivisionError

    @app.post("/things/{thing}")
    async def thing(thing: str, principal: Principal = Depends(caller)) -> str:  # noqa: B008
        async with service.open(principal, [Generation(prompt=[1, 2, 3])]) as [stream]:
            return "".join([event.text async for event in stream if isinstance(event, wire.TokenOut)])

    return app


def client() -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(make_app()), base_url="http://it")


def test_a_request_id_is_taken_or_made_and_given_back() -> None:
    async def main() -> None:
        async with client() as http:
            assert (await http.get("/health", headers={"x-request-id": "a-1"})).headers["x-request-id"] == "a-1"
            made = [(await http.get("/health")).headers["x-request-id"] for _ in range(2)]
            assert len(set(made)) == 2
            assert (await http.get("/health")).headers["date"].endswith(" GMT")
            for unfit in ("", "a b", "x" * 129, '"'):
                got = (await http.get("/nothing", headers={"x-request-id": unfit})).headers["x-request-id"]
                assert got != unfit
                assert len(got) == 32

    asyncio.run(main())


def test_a_bug_is_a_500_with_its_traceback_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with client() as http:
            answer = await http.get("/bug", headers={"x-request-id": "a-1"})
            assert answer.status_code == 500
            assert answer.json()["error"]["type"] == "server_error"
            assert answer.headers["x-request-id"] == "a-1"
            assert "ZeroDivision" not in answer.text

    asyncio.run(main())
    assert "ZeroDivisionError" in caplog.text


def test_the_log_has_one_line_per_request_without_secrets(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with client() as http:
            await http.post("/things/1?q=secret", content=b"secret", headers={"authorization": "Bearer secret"})
            await http.get("/health")

    with caplog.at_level(logging.INFO):
        asyncio.run(main())
    [line] = [record for record in caplog.records if hasattr(record, "fields")]
    document = json.loads(JsonFormatter("api").format(line))
    assert document["message"] == "POST /things/1 200"
    assert (document["prompt_tokens"], document["output_tokens"], document["finishes"]) == (3, 2, ["eos"])
    assert 0 < document["first_token_s"] <= document["total_s"]
    assert "secret" not in json.dumps(document)


def test_figures_for_prometheus() -> None:
    async def main() -> None:
        async with client() as http:
            for thing in ("1", "2"):
                await http.post(f"/things/{thing}")
            await http.get("/made/up/1")
            await http.get("/made/up/2")
            lines = (await http.get("/metrics")).text.splitlines()
        for line in (
            'aici_http_requests_total{method="POST",route="/things/{thing}",status="200"} 2.0',
            'aici_http_requests_total{method="GET",route="none",status="404"} 2.0',
            'aici_sequences_total{model="it",reason="eos"} 2.0',
            'aici_tokens_total{kind="prompt",model="it"} 6.0',
            'aici_tokens_total{kind="sampled",model="it"} 4.0',
            'aici_prefix_cache_hit_tokens_total{model="it"} 2.0',
            'aici_first_token_seconds_count{model="it"} 2.0',
            'aici_inter_token_seconds_count{model="it"} 2.0',
            'aici_engine_restarts_total{model="it"} 0.0',
            'aici_engine_up{model="it"} 1.0',
            'aici_cache_usage{model="it"} 0.5',
        ):
            assert line in lines, line

    asyncio.run(main())


def test_stats_are_the_engines_and_the_queues() -> None:
    async def main() -> None:
        async with client() as http:
            stats = (await http.get("/stats")).json()
            assert stats | STATS == stats
            assert (stats["queue_capacity"], stats["admitted_sequences"], stats["engine_restarts"]) == (8, 0, 0)

    asyncio.run(main())


def test_times_between_tokens_leave_out_forced_ones() -> None:
    metrics = Metrics()
    times = iter([10.0, 11.0, 11.0, 13.0])
    watch = StreamWatch(metrics, "it", None, clock=lambda: next(times))
    for forced in (False, True, False):
        watch(wire.TokenOut(1, 0, b"x", "x", forced, None, []))
    watch(wire.FinishOut(1, FinishReason.EOS, "", wire.UsageOut(3, 2, 1)))
    text = metrics.page({"it": {"engine_restarts": 0}}).decode()
    assert 'aici_first_token_seconds_sum{model="it"} 1.0' in text
    assert 'aici_inter_token_seconds_count{model="it"} 1.0' in text
    assert 'aici_inter_token_seconds_sum{model="it"} 2.0' in text


def test_lines_of_a_log() -> None:
    try:
        raise ValueError("it broke")
    except ValueError as error:
        trace = (ValueError, error, error.__traceback__)
    line = logging.LogRecord("aici_engine", logging.WARNING, "", 1, "said %s\nand more", ("this",), trace)
    token = logs.request_id.set("a-1")
    try:
        as_json, as_text = JsonFormatter("api").format(line), TextFormatter().format(line)
    finally:
        logs.request_id.reset(token)
    assert "\n" not in as_json
    document = json.loads(as_json)
    assert (document["level"], document["message"], document["request_id"]) == ("WARNING", "said this\nand more", "a-1")
    assert document["traceback"].endswith("ValueError: it broke")
    assert "WARNING said this" in as_text
    assert "request_id=a-1" in as_text
    assert as_text.endswith("ValueError: it broke")


def test_no_request_forges_a_line_or_moves_a_terminal() -> None:
    """The path of a request is the sender's."""
    path = "/x\r\n12:00:00 POST /v1/run 200\x1b[31m\u2028"
    line = logging.LogRecord("aici_engine", logging.INFO, "", 1, "%s %s %d", ("GET", path, 404), None)
    line.__dict__["fields"] = {"path": path}
    text = TextFormatter().format(line)
    assert text.isprintable()
    assert r"/x\r\n12:00:00" in text
