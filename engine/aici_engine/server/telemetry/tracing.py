"""OpenTelemetry spans, one per request. Needs the extra `otel`, and an OTEL_* variable with the collector's address."""

import contextlib
import logging
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

from aici_engine.server.telemetry.request_record import Record

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

_WHERE = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
_OPERATIONS = {
    "/v1/chat/completions": "chat",
    "/v1/messages": "chat",
    "/v1/responses": "chat",
    "/v1/completions": "text_completion",
    "/v1/run": "text_completion",
}

_log = logging.getLogger(__name__)


class Spans:
    """Writes a span per request. Attribute names follow the semantic conventions for HTTP and for generative AI."""

    def __init__(self, provider: "TracerProvider", *, model: str) -> None:
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self._tracer = provider.get_tracer("aici")
        self._parents = TraceContextTextMapPropagator()
        self._model = model

    def ended(self, record: Record) -> None:
        """Write the span of a finished request. No span object exists while the request runs."""
        from opentelemetry.trace import SpanKind, StatusCode

        span = self._tracer.start_span(
            f"{record.method} {record.route}".strip(),
            context=self._parents.extract({"traceparent": record.traceparent}),
            kind=SpanKind.SERVER,
            start_time=record.started_ns,
            attributes=self._attributes(record),
        )
        if record.first_token_s is not None:
            span.add_event("gen_ai.first_token", timestamp=record.started_ns + int(record.first_token_s * 1e9))
        if record.status >= 500:
            span.set_status(StatusCode.ERROR)
        span.end(record.started_ns + int(record.total_s * 1e9))

    def _attributes(self, record: Record) -> dict[str, str | int | list[str]]:
        attributes: dict[str, str | int | list[str]] = {
            "http.request.method": record.method,
            "http.route": record.route,
            "http.response.status_code": record.status,
            "aici.request_id": record.request_id,
            "aici.key": record.key_name,
        }
        if record.finishes:
            attributes |= {
                "gen_ai.provider.name": "aici",
                "gen_ai.operation.name": _OPERATIONS.get(record.route, "generate_content"),
                "gen_ai.request.model": self._model,
                "gen_ai.usage.input_tokens": record.prompt_tokens,
                "gen_ai.usage.output_tokens": record.output_tokens,
                "gen_ai.response.finish_reasons": record.finishes,
            }
        return attributes


@contextlib.contextmanager
def from_environment(model: str) -> Iterator[list[Spans]]:
    """Yield a list with one Spans if an OTEL_* endpoint is set, else an empty list. Flush the spans at the end."""
    if not any(os.environ.get(name) for name in _WHERE) or os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        yield []
        return
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ModuleNotFoundError as error:
        _log.warning("OTEL_* is set, but %s is not installed: no spans are sent. Install aici[otel].", error.name)
        yield []
        return
    name = os.environ.get("OTEL_SERVICE_NAME", "aici")
    provider = TracerProvider(resource=Resource.create({"service.name": name}), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    try:
        yield [Spans(provider, model=model)]
    finally:
        provider.shutdown()
