"""The gauges and counters of replicas, for Prometheus."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

Replicas: TypeAlias = Mapping[str, Sequence[Mapping[str, Any]]]
"""The replicas of each model, as `GET /replicas` describes them."""

_GAUGES: Final = {
    "open": "Sequences of the replica that wait or run",
    "waiting": "Sequences of the replica without a part of an answer",
    "oldest_wait_seconds": "Time of the oldest of the waiting sequences",
}
_COUNTERS: Final = {
    "restarts": "Engines of the replica started after an engine died",
    "requests": "Sequences sent to the replica",
    "prompt_tokens": "Tokens of prompts sent to the replica",
    "expected_cached_tokens": "Tokens of prompts that the router expected in the replica's cache",
}
_OF_ENGINE: Final = {
    "active_requests": "Running sequences of the replica",
    "cache_usage": "Share of the replica's KV pages in use, 0 to 1",
}
_LABELS: Final = ("model", "replica")


class ReplicaMetrics:
    """A collector of the state of replicas at the moment of the scrape."""

    def __init__(self, replicas: Replicas) -> None:
        self._replicas = [(model, each) for model, found in replicas.items() for each in found]

    def collect(self) -> Iterator[Metric]:
        up = GaugeMetricFamily("aici_replica_up", "1 while the replica takes requests, else 0", labels=_LABELS)
        for model, each in self._replicas:
            up.add_metric([model, str(each["replica"])], each["state"] == "up")
        yield up
        for name, meaning in _GAUGES.items():
            gauge = GaugeMetricFamily(f"aici_replica_{name}", meaning, labels=_LABELS)
            for model, each in self._replicas:
                gauge.add_metric([model, str(each["replica"])], each[name.replace("_seconds", "_s")])
            yield gauge
        for name, meaning in _COUNTERS.items():
            counter = CounterMetricFamily(f"aici_replica_{name}", meaning, labels=_LABELS)
            for model, each in self._replicas:
                counter.add_metric([model, str(each["replica"])], each[name])
            yield counter
        for name, meaning in _OF_ENGINE.items():
            gauge = GaugeMetricFamily(f"aici_replica_{name}", meaning, labels=_LABELS)
            for model, each in self._replicas:
                if each["engine"] is not None:
                    gauge.add_metric([model, str(each["replica"])], each["engine"][name])
            yield gauge
