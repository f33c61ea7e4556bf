"""Metrics for Prometheus. Every server has a registry of its own, so two servers in one process stay apart."""

import time
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, TypeVar

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from aici_engine.server.link import wire
from aici_engine.server.telemetry import request_record
from aici_engine.server.telemetry.gap_histogram import GapHistogram
from aici_engine.server.telemetry.history import History
from aici_engine.server.telemetry.replica_metrics import ReplicaMetrics, Replicas
from aici_engine.server.telemetry.request_record import Record

_SECONDS = [0.001 * 2**k for k in range(18)]
"""1 ms to 131 s."""
_KEPT_FINISHES = 64
"""The most finish reasons kept per request: a WebSocket counts as one request and may live for days."""


class Metrics:
    """The server's counters and histograms, and the last hour of each model. Watching a stream costs about two
    microseconds per token."""

    def __init__(self) -> None:
        self._histories: dict[str, History] = {}
        self.registry = registry = CollectorRegistry()
        self.requests = Counter(
            "aici_http_requests", "Answered requests", ["method", "route", "status"], registry=registry
        )
        self.sequences = Counter("aici_sequences", "Sequences that ended", ["model", "reason"], registry=registry)
        self.tokens = Counter("aici_tokens", "Tokens: prompt, sampled or forced", ["model", "kind"], registry=registry)
        self.cached_tokens = Counter(
            "aici_prefix_cache_hit_tokens", "Prompt tokens found in the prefix cache", ["model"], registry=registry
        )
        self.first_token = Histogram(
            "aici_first_token_seconds",
            "From submission to the first token",
            ["model"],
            buckets=_SECONDS,
            registry=registry,
        )
        self.inter_token = GapHistogram("aici_inter_token_seconds", "From a token to the next sampled token", _SECONDS)
        registry.register(self.inter_token)

    def ended(self, record: Record) -> None:
        """Count a request. All unknown paths share the route "none", so clients cannot create new series."""
        self.requests.labels(record.method, record.route or "none", str(record.status)).inc()

    def watch(self, model: str) -> "StreamWatch":
        """Return a watch of one stream of `model`."""
        return StreamWatch(self, model, request_record.current.get())

    def history(self, model: str) -> History:
        """Return the last hour of `model`, one of the server's models."""
        return self._histories.setdefault(model, History())

    def page(
        self,
        models: Mapping[str, Mapping[str, int | float]],
        pipeline: Mapping[str, Any] | None = None,
        keys: Mapping[str, Mapping[str, float]] = MappingProxyType({}),
        replicas: Replicas = MappingProxyType({}),
    ) -> bytes:
        """Return the metrics in Prometheus's text format.

        `models`: the values of the gauges, by the name of the model. `pipeline`: the state of the pipeline, if any.
        `keys`: the use by keys. `replicas`: of the models with several.
        """
        registry = CollectorRegistry()
        registry.register(_Gauges(models))
        registry.register(_Keys(keys))
        if replicas:
            registry.register(ReplicaMetrics(replicas))
        if pipeline is not None:
            registry.register(_Pipeline(pipeline))
        return generate_latest(self.registry) + generate_latest(registry)


_Family = TypeVar("_Family", GaugeMetricFamily, CounterMetricFamily)


class StreamWatch:
    """Measures one stream. Call it with every event on arrival."""

    def __init__(
        self, metrics: Metrics, model: str, record: Record | None, *, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._metrics = metrics
        self._model = model
        self._inter_token = metrics.inter_token.of(model)
        self._history = metrics.history(model)
        self._history.began()
        self._record = record
        self._clock = clock
        self._started = clock()
        self._last = 0.0

    def __call__(self, event: wire.StreamOut) -> None:
        if isinstance(event, wire.TokenOut):
            now = self._clock()
            if not self._last:
                self._first(now)
            elif event.forced:
                self._history.token(None)
            else:
                self._inter_token.observe(now - self._last)
                self._history.token(now - self._last)
            self._last = now
        elif isinstance(event, wire.FinishOut):
            self._finished(event)

    def _first(self, now: float) -> None:
        self._metrics.first_token.labels(self._model).observe(now - self._started)
        self._history.first_token(now - self._started)
        if self._record is not None and self._record.first_token_s is None:
            self._record.first_token_s = now - self._record.started

    def _finished(self, event: wire.FinishOut) -> None:
        usage = event.usage
        self._metrics.sequences.labels(self._model, event.reason.value).inc()
        if event.failure is None or usage.output:  # otherwise the prompt may not have been computed
            for kind, number in (("prompt", usage.prompt), ("sampled", usage.sampled), ("forced", usage.forced)):
                self._metrics.tokens.labels(self._model, kind).inc(number)
            self._metrics.cached_tokens.labels(self._model).inc(usage.cached)
        self._history.ended(prompt_tokens=usage.prompt, cached_tokens=usage.cached, has_begun=bool(self._last))
        if self._record is not None:
            self._record.prompt_tokens += usage.prompt
            self._record.output_tokens += usage.output
            if len(self._record.finishes) < _KEPT_FINISHES:
                self._record.finishes.append(event.reason.value)


class _Gauges:
    """A collector of the values of every model at the moment of the scrape."""

    def __init__(self, models: Mapping[str, Mapping[str, int | float]]) -> None:
        self._models = models

    def collect(self) -> Iterator[Metric]:
        for name, meaning in _GAUGES.items():
            made = GaugeMetricFamily(f"aici_{name}", meaning, labels=["model"])
            yield self._filled(made, name)
        for name, meaning in _COUNTERS.items():
            counter = CounterMetricFamily(f"aici_{name}", meaning, labels=["model"])
            yield self._filled(counter, name)

    def _filled(self, family: _Family, name: str) -> _Family:
        for model, values in self._models.items():
            if name in values:
                family.add_metric([model], values[name])
        return family


class _Keys:
    """A collector of what keys have used."""

    def __init__(self, keys: Mapping[str, Mapping[str, float]]) -> None:
        self._keys = keys

    def collect(self) -> Iterator[Metric]:
        tokens = CounterMetricFamily("aici_key_tokens", "Tokens of prompts and answers, by key", labels=["key"])
        times = CounterMetricFamily(
            "aici_key_guest_cpu_seconds", "Processor time of controllers, by key", labels=["key"]
        )
        for name, used in self._keys.items():
            tokens.add_metric([name], used["tokens"])
            times.add_metric([name], used["guest_cpu_seconds"])
        yield tokens
        yield times


class _Pipeline:
    """A collector of the state of a pipeline: of the whole, and of its stages. `node` of the driver is "driver"."""

    def __init__(self, status: Mapping[str, Any]) -> None:
        self._status = status

    def collect(self) -> Iterator[Metric]:
        status = self._status
        yield GaugeMetricFamily(
            "aici_pipeline_up", "1 while all stages are connected, else 0", value=status["state"] == "ready"
        )
        for name, (family, key, meaning) in _OF_PIPELINE.items():
            yield family(f"aici_pipeline_{name}", meaning, value=status[key] or 0)
        stages = [(str(i), stage["name"], stage) for i, stage in enumerate(status["stages"])]
        if status["driver"] is not None:
            stages.append((str(len(stages)), "driver", status["driver"]))
        for name, (family, key, meaning) in _OF_STAGES.items():
            made = family(f"aici_stage_{name}", meaning, labels=["stage", "node"])
            for number, node, stage in stages:
                if key in stage:
                    made.add_metric([number, node], stage[key])
            yield made
        layers = GaugeMetricFamily("aici_stage_layers", "Layers of the stage", labels=["stage", "node"])
        for number, node, stage in stages:
            layers.add_metric([number, node], stage["last"] - stage["first"])
        yield layers


_OF_PIPELINE = {
    "epoch": (GaugeMetricFamily, "epoch", "Number of the pipeline's life; every interruption begins a new one"),
    "interruptions": (CounterMetricFamily, "interruptions", "Interruptions: a stage or a connection was lost"),
    "pages": (GaugeMetricFamily, "num_pages", "KV pages, the same in every stage"),
    "steps": (CounterMetricFamily, "num_steps", "Computed steps"),
    "tokens": (CounterMetricFamily, "num_tokens", "Computed tokens of prompts and answers"),
    "hop_seconds": (GaugeMetricFamily, "hop_s", "Mean seconds of a step that no stage computes: messages and network"),
}
_OF_STAGES = {
    "computed_seconds": (CounterMetricFamily, "computed_s", "Time in which the stage computed"),
    "waited_seconds": (
        CounterMetricFamily,
        "waited_s",
        "Time in which the stage waited for a step, idle times left out",
    ),
    "round_trip_seconds": (
        GaugeMetricFamily,
        "rtt_s",
        "Round trip between driver and stage, when the stage was attached",
    ),
    "weight_bytes": (GaugeMetricFamily, "weight_bytes", "Bytes of the stage's weights"),
    "page_bytes": (GaugeMetricFamily, "page_bytes", "Bytes of a KV page in the stage"),
}
_COUNTERS = {
    "engine_restarts": "Engines started after an engine died",
    "model_loads": "Times that the model was loaded",
    "guest_cpu_seconds": "Processor time of controllers",
    "drafted_tokens": "Drafted tokens that forward passes computed",
    "accepted_tokens": "Drafted tokens that became text",
}
_GAUGES = {
    "engine_up": "1 while an engine is up, else 0",
    "admitted_sequences": "Sequences admitted and not ended",
    "queue_capacity": "The most admitted sequences; further requests are refused",
    "active_requests": "Running sequences",
    "waiting_requests": "Sequences waiting to run",
    "model_memory_bytes": "Weights and full cache of the model; 0 while it is not loaded",
    "cache_usage": "Share of KV pages in use, 0 to 1",
}
