"""A stream over a backend without an engine."""

import gc

import pytest

import aici
from aici.backend import Call
from aici.constraints import UNCONSTRAINED
from aici.stream import Stream
from tests.support.fake_backend import FakeBackend, finish_event, token_event

CALL = Call(prompt="p", sampling=aici.SamplingParams(), constraint=None)


def stream_of(backend: FakeBackend) -> Stream[str]:
    return Stream(backend, CALL, "p", UNCONSTRAINED)


def test_the_events_come_in_order_and_make_a_result() -> None:
    stream = stream_of(FakeBackend([token_event("a"), token_event("b"), finish_event("ab")]))
    assert [type(event) for event in stream] == [aici.TokenEvent, aici.TokenEvent, aici.FinishEvent]
    assert stream.result().text == "ab"
    assert list(stream) == []


def test_a_loop_that_is_left_ends_the_request() -> None:
    backend = FakeBackend([token_event("a"), token_event("b")])
    for _ in stream_of(backend):
        break
    gc.collect()
    assert backend.num_aborts


def test_a_stream_that_nobody_reads_ends_its_request() -> None:
    backend = FakeBackend()
    stream_of(backend)
    gc.collect()
    assert backend.num_aborts


def test_a_failure_is_raised_after_the_last_event() -> None:
    failed = finish_event("", reason=aici.FinishReason.FAIL, error=aici.ControllerError("broken"))
    stream = stream_of(FakeBackend([failed]))
    events = iter(stream)
    assert next(events) is failed
    with pytest.raises(aici.ControllerError, match="broken"):
        next(events)
    assert stream.result().error is failed.error


def test_an_error_in_place_of_events_is_raised_each_time() -> None:
    stream = stream_of(FakeBackend([aici.UnreachableError("gone")]))
    for _ in range(2):
        with pytest.raises(aici.UnreachableError):
            stream.result()


def test_reasons_that_are_failures_have_an_error() -> None:
    for reason in (aici.FinishReason.DEADLOCK, aici.FinishReason.OUT_OF_FUEL):
        result = stream_of(FakeBackend([finish_event("", reason=reason)])).result()
        assert isinstance(result.error, aici.ControllerError)
