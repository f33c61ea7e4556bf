"""The histogram of the times between tokens says what the histogram of prometheus_client says."""

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Histogram, generate_latest

from aici_engine.server.telemetry.gap_histogram import GapHistogram

_BOUNDS = [0.001 * 2**k for k in range(6)]
_TIMES = st.lists(st.floats(0, 1) | st.sampled_from(_BOUNDS), max_size=30)


@given(st.dictionaries(st.sampled_from(["a", "b"]), _TIMES, min_size=1))
def test_the_text_is_that_of_prometheus_client(times: dict[str, list[float]]) -> None:
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    gaps = GapHistogram("aici_gaps", "Gaps", _BOUNDS)
    ours.register(gaps)
    known = Histogram("aici_gaps", "Gaps", ["model"], buckets=_BOUNDS, registry=theirs)
    for model, seconds in times.items():
        mine, other = gaps.of(model), known.labels(model)
        for each in seconds:
            mine.observe(each)
            other.observe(each)
    assert _lines(ours) == _lines(theirs)


def _lines(registry: CollectorRegistry) -> set[str]:
    return {line for line in generate_latest(registry).decode().splitlines() if "_created" not in line}
