"""An engine goes on with another runtime."""

import threading
from concurrent.futures import Future

import pytest

from aici_base.errors import RuntimeDiedError, UsageError
from aici_engine.config import SamplingParams
from aici_engine.engine import Engine
from aici_engine.events import FinishReason
from aici_engine.request import Request
from tests.engine.control.scripted_guests import (
    GUESTS,
    submit,
)
from tests.engine.support import (
    VOCAB_SIZE,
    ScriptedRuntime,
    wait_for_token,
)


def test_with_a_new_runtime_it_goes_on(engine: Engine, runtime: ScriptedRuntime) -> None:
    plain = engine.submit(Request(prompt="Hello", sampling=SamplingParams(temperature=0.0)))
    lost = [submit(engine, "guest"), submit(engine, "suspend", 3)]
    runtime.dies_at_round = runtime.rounds + 5
    assert {type(handle.wait().error) for handle in lost} == {RuntimeDiedError}
    new = ScriptedRuntime(dict(GUESTS))
    engine.use_runtime(new)
    assert submit(engine, "spell", "on it goes").wait().text == "on it goes"
    assert plain.wait().error is None
    assert new.all
    # The runtime may die, too.
    new.dies_at_round = new.rounds + 3
    assert isinstance(submit(engine, "guest").wait().error, RuntimeDiedError)


def test_a_runtime_that_lives_may_be_replaced_too(engine: Engine, runtime: ScriptedRuntime) -> None:
    running = submit(engine, "guest")
    wait_for_token(running)
    runtime.hold.clear()
    starting = submit(engine, "missing")
    new = ScriptedRuntime(dict(GUESTS))
    engine.use_runtime(new)
    for handle in (starting, running):
        assert "was replaced" in str(handle.wait().error)
    runtime.hold.set()
    assert submit(engine, "spell", "on it goes").wait().text == "on it goes"
    assert new.all
    runtime.live.clear()


class DeadRuntime(ScriptedRuntime):
    """Has died, and the engine has not heard of it."""

    def instantiate(self, **_: object) -> "Future[None]":
        future: Future[None] = Future()
        future.set_exception(RuntimeDiedError("the runtime has died"))
        return future


def settle(engine: Engine) -> None:
    """Wait until the engine has heard of guests that did not start."""
    for _ in range(2):
        heard = threading.Event()
        engine.nudge(heard.set)
        assert heard.wait(10)


def test_new_requests_wait_for_the_next_runtime(engine: Engine, runtime: ScriptedRuntime) -> None:
    engine.expect_runtime(True)
    lost = submit(engine, "guest")
    runtime.dies_at_round = runtime.rounds + 5
    assert isinstance(lost.wait().error, RuntimeDiedError)
    waiting = [submit(engine, "spell", "on it goes"), submit(engine, "spell", "and on")]
    left = submit(engine, "spell", "nobody hears")
    left.abort()
    assert left.wait().reason is FinishReason.ABORT
    engine.use_runtime(DeadRuntime(dict(GUESTS)))
    settle(engine)
    engine.use_runtime(ScriptedRuntime(dict(GUESTS)))
    assert [handle.wait().text for handle in waiting] == ["on it goes", "and on"]


def test_requests_do_not_wait_for_a_runtime_that_does_not_come_soon(engine: Engine, runtime: ScriptedRuntime) -> None:
    engine.expect_runtime(True)
    engine.use_runtime(DeadRuntime(dict(GUESTS)))
    waiting = submit(engine, "spell", "in vain")
    plain = engine.submit(Request(prompt="Hello", sampling=SamplingParams(max_tokens=3)))
    assert plain.wait().error is None
    engine.expect_runtime(False)
    assert isinstance(waiting.wait().error, RuntimeDiedError)
    assert isinstance(submit(engine, "spell", "in vain").wait().error, RuntimeDiedError)
    engine.use_runtime(ScriptedRuntime(dict(GUESTS)))
    assert submit(engine, "spell", "on it goes").wait().text == "on it goes"


def test_a_runtime_of_another_vocabulary_is_refused(engine: Engine) -> None:
    other = ScriptedRuntime(dict(GUESTS))
    other.vocab_size = VOCAB_SIZE - 1
    with pytest.raises(UsageError, match=r"299 tokens.*300"):
        engine.use_runtime(other)
    assert submit(engine, "spell", "on it goes").wait().text == "on it goes"
