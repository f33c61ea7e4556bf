"""An engine goes on with another runtime."""

import pytest

from aici_base.errors import RuntimeDiedError, UsageError
from aici_engine.config import SamplingParams
from aici_engine.engine import Engine
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


def test_a_runtime_of_another_vocabulary_is_refused(engine: Engine) -> None:
    other = ScriptedRuntime(dict(GUESTS))
    other.vocab_size = VOCAB_SIZE - 1
    with pytest.raises(UsageError, match=r"299 tokens.*300"):
        engine.use_runtime(other)
    assert submit(engine, "spell", "on it goes").wait().text == "on it goes"
