"""What fails alone, and what takes others along: guests, messages, the runtime, bugs of the engine."""

import queue
import re
from pathlib import Path
from typing import Any

import pytest

from aici_base.errors import AiciError, RuntimeDiedError, UsageError
from aici_base.ids import TokenId
from aici_engine.config import EngineConfig, SamplingParams
from aici_engine.engine import Engine
from aici_engine.events import (
    FinishEvent,
    FinishReason,
)
from aici_engine.request import ControllerCall, Request
from aici_runtime.wire import Splice
from tests.engine.control.scripted_guests import (
    GUESTS,
    submit,
)
from tests.engine.support import (
    VOCAB_SIZE,
    Guest,
    ScriptedRuntime,
    encode,
    wait_for_token,
)


@pytest.mark.parametrize(("backtrack", "ff"), [(9, ""), (100, ""), (10, "Z"), (11, "bcZ")])
def test_removing_everything_fails_alone(engine: Engine, backtrack: int, ff: str) -> None:
    splice = Splice(backtrack, tuple(encode(ff)))
    end = submit(engine, "script", [encode("a"), encode("b"), encode("c"), splice]).wait()
    assert end.reason is FinishReason.FAIL
    assert "removed" in str(end.error)


@pytest.mark.parametrize(
    ("name", "argument", "message"),
    [
        ("failpre", None, r"Error \(pre\): it broke"),
        ("script", [encode("a"), "Error (mid): trap"], r"Error \(mid\): trap"),
        ("script", [[]], "allows no token"),
        ("script", [Splice(0, (TokenId(VOCAB_SIZE),))], "forced token 300"),
        ("missing", None, "no controller missing"),
    ],
)
def test_a_guest_that_fails_fails_alone(engine: Engine, name: str, argument: Any, message: str) -> None:
    beside = submit(engine, "spell", "all is well")
    end = submit(engine, name, argument).wait()
    assert end.reason is FinishReason.FAIL
    assert end.error is not None
    assert re.search(message, str(end.error))
    assert beside.wait().text == "all is well"


def test_when_the_runtime_dies_controlled_requests_fail_and_others_do_not(
    engine: Engine, runtime: ScriptedRuntime
) -> None:
    plain = engine.submit(Request(prompt="Hello", sampling=SamplingParams(temperature=0.0)))
    controlled = [submit(engine, "guest"), submit(engine, "suspend", 3)]
    runtime.dies_at_round = runtime.rounds + 5
    for handle in controlled:
        end = handle.wait()
        assert (end.reason, str(end.error)) == (FinishReason.FAIL, "the runtime died")
    assert plain.wait().reason in (FinishReason.LENGTH, FinishReason.EOS)
    assert submit(engine, "guest").wait().reason is FinishReason.FAIL


def test_a_message_that_the_runtime_refuses_fails_controlled_requests_only(
    engine: Engine, runtime: ScriptedRuntime
) -> None:
    plain = engine.submit(Request(prompt="Hello", sampling=SamplingParams(temperature=0.0)))
    controlled = submit(engine, "guest")
    runtime.refuses_at_round = 4
    end = controlled.wait()
    assert (end.reason, str(end.error)) == (FinishReason.FAIL, "no such round")
    assert plain.wait().error is None
    assert submit(engine, "spell", "on it goes").wait().text == "on it goes"


def test_a_bug_ends_every_request_and_the_engine_says_so(engine: Engine, runtime: ScriptedRuntime) -> None:
    plain = engine.submit(Request(prompt="Hello", sampling=SamplingParams(temperature=0.0)))
    runtime.breaks_at_round = 4
    ends = [submit(engine, "guest").wait(), plain.wait()]
    assert [end.reason for end in ends] == [FinishReason.FAIL] * 2
    with pytest.raises(AiciError, match="the engine failed: KeyError"):
        engine.generate("a")


def test_a_bug_in_dropping_a_guest_ends_its_request_too(tiny_model: Path) -> None:
    class Broken(ScriptedRuntime):
        def discard(self, req_id: str) -> None:
            if not self.hold.is_set():
                self.hold.set()
                raise KeyError("a bug")
            super().discard(req_id)

    runtime = Broken(dict(GUESTS))
    runtime.hold.clear()
    with Engine(EngineConfig(model_dir=tiny_model, num_pages=64), runtime=runtime) as engine:
        ends: queue.SimpleQueue[FinishEvent] = queue.SimpleQueue()
        request = Request(prompt="Hello", controller=ControllerCall("guest"))
        engine.submit(request, sink=ends.put).abort()  # type: ignore[arg-type]
        assert ends.get(timeout=5).reason is FinishReason.ABORT


@pytest.mark.parametrize("argument", ["\ud800", object(), {1: 2}, 2**70])
def test_an_argument_that_json_cannot_say_fails_alone(engine: Engine, runtime: ScriptedRuntime, argument: Any) -> None:
    def as_the_wire_does(argument: Any) -> Guest:
        raise AssertionError("it never got here")

    runtime.guests["strict"] = as_the_wire_does
    end = submit(engine, "strict", argument).wait()
    assert end.reason is FinishReason.FAIL
    assert "cannot be written as JSON" in str(end.error)
    assert submit(engine, "spell", "on it goes").wait().text == "on it goes"


def test_a_guest_whose_first_round_is_refused_is_discarded(engine: Engine, runtime: ScriptedRuntime) -> None:
    runtime.refuses_at_round = 1
    assert str(submit(engine, "guest").wait().error) == "no such round"
    assert submit(engine, "spell", "on it goes").wait().text == "on it goes"


@pytest.mark.parametrize("asked", [{"score_from": 0}, {"sampling": SamplingParams(ignore_eos=True)}])
def test_what_does_not_go_with_a_controller_is_refused(engine: Engine, asked: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=r"(score_from|ignore_eos) does not go with a controller"):
        engine.submit(Request(prompt="a", controller=ControllerCall("spell", "a"), **asked))


@pytest.mark.parametrize("priority", [1 << 31, -(1 << 31) - 1])
def test_a_priority_beyond_all_bounds_is_refused(engine: Engine, priority: int) -> None:
    with pytest.raises(UsageError, match=f"priority is {priority}"):
        engine.submit(Request(prompt="a", priority=priority))


def test_a_guest_that_starts_while_the_runtime_dies_does_not_wait_for_the_next_request(tiny_model: Path) -> None:
    class DiesFreeing(ScriptedRuntime):
        def send_turn(self, *, freed: Any, **ops: Any) -> None:
            if freed:
                raise RuntimeDiedError("the runtime died")
            super().send_turn(freed=freed, **ops)

    runtime = DiesFreeing(dict(GUESTS))
    with Engine(EngineConfig(model_dir=tiny_model, num_pages=64), runtime=runtime) as engine:
        last = submit(engine, "spell", "a long word that takes its time")
        wait_for_token(last)
        runtime.hold.clear()
        ends: queue.SimpleQueue[Any] = queue.SimpleQueue()
        engine.submit(Request(prompt="Hello", controller=ControllerCall("missing")), sink=ends.put)
        try:
            assert last.wait().reason is FinishReason.STOP
            assert isinstance(ends.get(timeout=5).error, RuntimeDiedError)
        finally:
            runtime.hold.set()
