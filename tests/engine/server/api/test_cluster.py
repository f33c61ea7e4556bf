"""`GET /cluster`, its events and its metrics."""

import asyncio
import json
from typing import Any

import httpx2 as httpx
from prometheus_client.parser import text_string_to_metric_families

from aici_base.errors import UnavailableError
from aici_engine.server.api import cluster
from aici_engine.server.api.app import create_app
from aici_engine.server.service.models import Models
from tests.support.fake_engine import FakeEngine
from tests.support.fake_service import service_over
from tests.support.http import listening
from tests.support.pipeline_status import pipeline_status


def fetch(engine: FakeEngine, path: str, **headers: str) -> httpx.Response:
    async def main() -> httpx.Response:
        app = create_app(service_over(engine))
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://it") as http:
            return await http.get(path, headers=headers)

    return asyncio.run(main())


def test_the_pipeline_is_shown() -> None:
    status = pipeline_status()
    assert fetch(FakeEngine(calls={"cluster": status}), "/cluster").json() == {"engine_up": True, "pipeline": status}


def test_a_server_without_a_stage_is_not_ready_and_will_recover() -> None:
    engine = FakeEngine(calls={"cluster": pipeline_status() | {"state": "interrupted"}})
    assert fetch(engine, "/ready").status_code == 503
    health = fetch(engine, "/health")
    assert (health.status_code, health.json()) == (
        200,
        {"status": "interrupted", "model_loaded": False, "models": {"it": "loaded"}},
    )


def test_a_server_with_all_stages_is_ready() -> None:
    engine = FakeEngine(calls={"cluster": pipeline_status()})
    assert fetch(engine, "/ready").status_code == 200
    expected = {"status": "ok", "model_loaded": True, "models": {"it": "loaded"}}
    assert fetch(engine, "/health").json() == expected


def test_one_process_has_no_pipeline() -> None:
    assert fetch(FakeEngine(), "/cluster").json() == {"engine_up": True, "pipeline": None}


def test_without_an_engine_the_answer_is_an_error() -> None:
    engine = FakeEngine()
    engine.client.lost(UnavailableError("gone"))
    assert fetch(engine, "/cluster").status_code == 503


def test_events_are_sent_at_changes_and_end_with_the_server() -> None:
    async def main() -> None:
        engine = FakeEngine(calls={"cluster": pipeline_status(epoch=1)})
        service = service_over(engine)
        seen: list[dict[str, Any]] = []
        async with listening(create_app(service)) as port, httpx.AsyncClient() as http:
            headers = {"Accept": "text/event-stream"}
            async with http.stream("GET", f"http://127.0.0.1:{port}/cluster", headers=headers) as answer:
                assert answer.headers["content-type"].startswith("text/event-stream")
                async for line in answer.aiter_lines():
                    if not line:
                        continue
                    seen.append(json.loads(line.removeprefix("data: ")))
                    if len(seen) == 1:
                        engine.calls["cluster"] = pipeline_status(epoch=2)
                    elif len(seen) == 2:
                        engine.client.lost(UnavailableError("gone"))
                    else:
                        service.admission.drain_begun.set()
        assert [event["pipeline"] and event["pipeline"]["epoch"] for event in seen] == [1, 2, None]
        assert [event["engine_up"] for event in seen] == [True, True, False]

    asyncio.run(main())


def test_metrics_show_the_pipeline() -> None:
    page = fetch(FakeEngine(calls={"stats": {}, "cluster": pipeline_status()}), "/metrics").text
    samples = {
        (sample.name, sample.labels.get("stage"), sample.labels.get("node")): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    }
    assert samples["aici_pipeline_up", None, None] == 1
    assert samples["aici_pipeline_interruptions_total", None, None] == 2
    assert samples["aici_stage_computed_seconds_total", "0", "far"] == 1.5
    assert samples["aici_stage_waited_seconds_total", "0", "far"] == 0.5
    assert samples["aici_stage_round_trip_seconds", "0", "far"] == 0.001
    assert samples["aici_stage_layers", "1", "driver"] == 13
    assert ("aici_stage_waited_seconds_total", "1", "driver") not in samples


def test_metrics_of_an_interrupted_pipeline_have_no_stages() -> None:
    status = pipeline_status(state="interrupted", epoch=None, stages=[], driver=None, hop_s=None)
    page = fetch(FakeEngine(calls={"stats": {}, "cluster": status}), "/metrics").text
    assert "aici_pipeline_up 0.0" in page
    assert "aici_stage_layers{" not in page


def test_metrics_without_a_pipeline_have_none() -> None:
    assert "pipeline" not in fetch(FakeEngine(calls={"stats": {}}), "/metrics").text


def test_a_cancellation_is_not_lost_when_the_server_stops_at_the_same_time() -> None:
    async def main() -> None:
        models = Models.of(service_over(FakeEngine()))
        events = cluster._events(models)
        assert await anext(events)

        async def next_event() -> bytes:
            return await anext(events)

        waiting = asyncio.create_task(next_event())
        while not models.admission.drain_begun._waiters:  # type: ignore[attr-defined]
            await asyncio.sleep(0)
        models.admission.drain_begun.set()
        waiting.cancel()
        await asyncio.wait([waiting])
        assert waiting.cancelled()

    asyncio.run(main())
