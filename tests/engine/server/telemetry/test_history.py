"""The last hour of a model: against a plain list of what happened."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aici_engine.config import SamplingParams
from aici_engine.server.link import wire
from aici_engine.server.telemetry.history import INTERVAL_S, NUM_INTERVALS, History, Times
from aici_engine.server.telemetry.metrics import Metrics, StreamWatch
from tests.support.fake_engine import says

HOUR_S = INTERVAL_S * NUM_INTERVALS


class Clock:
    now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@given(st.lists(st.floats(1e-5, 1e4), min_size=1), st.floats(0.01, 1.0))
def test_percentiles_are_right_within_five_percent(seconds: list[float], share: float) -> None:
    times = Times()
    for each in seconds:
        times.add(each)
    exact = sorted(seconds)[math.ceil(share * len(seconds)) - 1]
    assert times.percentile(share) == pytest.approx(exact, rel=0.052)


def test_without_times_there_is_no_percentile() -> None:
    assert Times().percentile(0.5) is None


@given(st.lists(st.tuples(st.floats(0, 700), st.integers(0, 3)), max_size=60))
def test_every_event_of_the_last_hour_is_counted_once(steps: list[tuple[float, int]]) -> None:
    clock = Clock()
    history = History(clock)
    tokens: list[float] = []
    ends: list[float] = []
    for pause_s, kind in steps:
        clock.now += pause_s
        history.began()
        if kind:
            history.first_token(0.1)
            for _ in range(kind - 1):
                history.token(0.01)
            tokens += [clock.now] * kind
        history.ended(prompt_tokens=2, cached_tokens=1, has_begun=bool(kind))
        ends.append(clock.now)
    oldest = (clock.now // INTERVAL_S - NUM_INTERVALS + 1) * INTERVAL_S
    shown = list(history.intervals())
    assert [each["time"] for each in shown] == sorted({at // INTERVAL_S * INTERVAL_S for at in ends if at >= oldest})
    assert sum(each["output_tokens"] for each in shown) == sum(at >= oldest for at in tokens)
    num_ends = sum(at >= oldest for at in ends)
    totals = {name: sum(each[name] for each in shown) for name in ("ended", "prompt_tokens", "cached_tokens")}
    assert totals == {"ended": num_ends, "prompt_tokens": 2 * num_ends, "cached_tokens": num_ends}
    assert {each["streams"] for each in shown} <= {1}


def test_open_and_waiting_streams_are_the_most_at_a_moment() -> None:
    clock = Clock()
    history = History(clock)
    for _ in range(3):
        history.began()
    history.first_token(1.0)
    clock.now += INTERVAL_S
    history.token(None)
    history.ended(prompt_tokens=0, cached_tokens=0, has_begun=True)
    clock.now += INTERVAL_S
    history.ended(prompt_tokens=0, cached_tokens=0, has_begun=False)
    assert [(each["streams"], each["waiting"]) for each in history.intervals()] == [(3, 3), (3, 2), (2, 2)]
    clock.now += HOUR_S
    assert list(history.intervals()) == []


def test_a_stream_is_watched_to_its_end() -> None:
    metrics = Metrics()
    times = iter([0.0, 0.5, 0.6])
    watch = StreamWatch(metrics, "it", None, clock=lambda: next(times))
    for event in says("a", "b")(wire.Submit([1, 2, 3], SamplingParams(), stream=1)):
        watch(event)
    [interval] = metrics.history("it").intervals()
    assert (interval["output_tokens"], interval["prompt_tokens"], interval["ended"]) == (2, 3, 1)
    assert interval["first_token_s"]["p50"] == pytest.approx(0.5, rel=0.052)
    assert interval["inter_token_s"]["p99"] == pytest.approx(0.1, rel=0.052)
    assert list(metrics.history("another").intervals()) == []
