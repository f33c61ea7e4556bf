"""A span per request with usage, and the set-up from environment variables to a collector."""

import asyncio
import http.server
import threading
from collections.abc import Iterator

import httpx2 as httpx
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from aici_engine.server.telemetry.request_record import Record
from aici_engine.server.telemetry.tracing import Spans, from_environment
from tests.engine.server.gateway.test_access_log import make_app

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def test_a_span_has_the_usage_of_a_request() -> None:
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    app = make_app(observers=[Spans(provider, model="it")])

    async def main() -> None:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://it") as http:
            await http.post("/things/1", headers={"traceparent": PARENT, "x-request-id": "a-1"})
            await http.get("/bug")

    asyncio.run(main())
    good, bad = exporter.get_finished_spans()
    assert good.name == "POST /things/{thing}"
    assert good.parent is not None
    assert f"{good.parent.span_id:x}" == "b7ad6b7169203331"
    attributes = dict(good.attributes or {})
    assert attributes["gen_ai.usage.input_tokens"] == 3
    assert attributes["gen_ai.usage.output_tokens"] == 2
    assert attributes["gen_ai.response.finish_reasons"] == ("eos",)
    assert attributes["aici.request_id"] == "a-1"
    [event] = good.events
    assert good.start_time is not None
    assert good.end_time is not None
    assert good.start_time <= event.timestamp <= good.end_time
    assert not bad.status.is_ok
    assert "gen_ai.usage.input_tokens" not in dict(bad.attributes or {})


@pytest.fixture
def collector() -> Iterator[tuple[str, list[bytes]]]:
    got: list[bytes] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got.append(self.rfile.read(int(self.headers["content-length"])))
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None: ...  # noqa: A002  # the base class's name

    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", got
    server.shutdown()
    thread.join()
    server.server_close()


def test_spans_go_where_the_environment_says(
    collector: tuple[str, list[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    url, got = collector
    with from_environment("it") as none:
        assert none == []
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
    with from_environment("it") as [spans]:
        spans.ended(Record(request_id="a-1", method="GET", path="/health", route="/health", status=200))
    assert any(b"GET /health" in body for body in got)
