"""Figures for Prometheus, in a registry of their own: two servers in one process do not add up."""

import time
from collections.abc import Callable, Iterator, Mapping

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from aici_engine.server.link import wire
from aici_engine.server.telemetry import request_record
from aici_engine.server.telemetry.request_record import Record

_SECONDS = [0.001 * 2**k for k in range(18)]
"""1 ms to 131 s."""
_KEPT_FINISHES = 64
"""Of one request: a WebSocket is one for days."""


class Metrics:
    """`watch` costs about a microsecond a token."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self.requests = Counter(
            "aici_http_requests", "Requests that were answered", ["method", "route", "status"], registry=registry
        )
        self.sequences = Counter("aici_sequences", "Sequences that ended", ["reason"], registry=registry)
        self.tokens = Counter("aici_tokens", "Tokens: prompt, sampled or forced", ["kind"], registry=registry)
        self.cached_tokens = Counter(
            "aici_prefix_cache_hit_tokens", "Tokens of prompts that had been computed before", registry=registry
        )
        self.first_token = Histogram(
            "aici_first_token_seconds", "From submission to the first token", buckets=_SECONDS, registry=registry
        )
        self.inter_token = Histogram(
            "aici_inter_token_seconds", "Between a token and the sampled one after it", buckets=_SECONDS,
            registry=registry,
        )  # fmt: skip

    def ended(self, record: Record) -> None:
        """Paths that are nowhere are one: whoever makes them up makes no new series."""
        self.requests.labels(record.method, record.route or "none", str(record.status)).inc()

    def watch(self) -> "StreamWatch":
        return StreamWatch(self, request_record.current.get())

    def page(self, server: Mapping[str, int | float]) -> bytes:
        """The text format. `server`: values of the gauges."""
        registry = CollectorRegistry()
        registry.register(_Server(server))
        return generate_latest(self.registry) + generate_latest(registry)


class StreamWatch:
    """Sees each event of one stream as it arrives."""

    def __init__(
        self, metrics: Metrics, record: Record | None, *, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._metrics = metrics
        self._record = record
        self._clock = clock
        self._started = clock()
        self._last = 0.0

    def __call__(self, event: wire.StreamOut) -> None:
        if isinstance(event, wire.TokenOut):
            now = self._clock()
            if not self._last:
                self._first(now)
            elif not event.forced:
                self._metrics.inter_token.observe(now - self._last)
            self._last = now
        elif isinstance(event, wire.FinishOut):
            self._finished(event)

    def _first(self, now: float) -> None:
        self._metrics.first_token.observe(now - self._started)
        if self._record is not None and self._record.first_token_s is None:
            self._record.first_token_s = now - self._record.started

    def _finished(self, event: wire.FinishOut) -> None:
        usage = event.usage
        self._metrics.sequences.labels(event.reason.value).inc()
        if event.failure is None or usage.output:  # else the prompt may not have been computed
            for kind, number in (("prompt", usage.prompt), ("sampled", usage.sampled), ("forced", usage.forced)):
                self._metrics.tokens.labels(kind).inc(number)
            self._metrics.cached_tokens.inc(usage.cached)
        if self._record is not None:
            self._record.prompt_tokens += usage.prompt
            self._record.output_tokens += usage.output
            if len(self._record.finishes) < _KEPT_FINISHES:
                self._record.finishes.append(event.reason.value)


class _Server:
    """A collector of what is so at this moment."""

    def __init__(self, stats: Mapping[str, int | float]) -> None:
        self._stats = stats

    def collect(self) -> Iterator[Metric]:
        for name, what in _GAUGES.items():
            if name in self._stats:
                yield GaugeMetricFamily(f"aici_{name}", what, value=self._stats[name])
        yield CounterMetricFamily(
            "aici_engine_restarts", "Engines that were started after one died", value=self._stats["engine_restarts"]
        )


_GAUGES = {
    "engine_up": "1 while there is an engine that serves",
    "admitted_sequences": "Sequences that were let in and have not ended",
    "queue_capacity": "Sequences that are let in before requests are refused",
    "active_requests": "Sequences that run",
    "waiting_requests": "Sequences that wait to run",
    "cache_usage": "The part of the cache's pages that is in use, 0 to 1",
}
