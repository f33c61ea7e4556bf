"""When guests start: in turn, by priority, within the places of the runtime."""

import time
from pathlib import Path
from typing import Any

from aici_engine.config import EngineConfig
from aici_engine.engine import Engine
from aici_engine.events import (
    FinishEvent,
    FinishReason,
)
from aici_engine.request import ControllerCall, Request
from aici_runtime.memory.worker_slots import NUM_WORKER_SLOTS
from tests.engine.control.scripted_guests import (
    GUESTS,
    submit,
)
from tests.engine.support import (
    ScriptedRuntime,
)


def test_a_request_whose_guest_does_not_start_is_not_accepted(engine: Engine) -> None:
    [end] = submit(engine, "nobody").events()
    assert isinstance(end, FinishEvent)
    assert end.error is not None


def test_a_crowd_of_guests_starts_in_turn(engine: Engine, runtime: ScriptedRuntime) -> None:
    runtime.max_guests = 8 + 16
    handles = [submit(engine, "spell", f"number {i}") for i in range(100)]
    for handle in handles[30:60]:
        handle.abort()
    missing = submit(engine, "missing")
    ends = [handle.wait() for handle in handles]
    assert {end.reason for end in ends[30:60]} <= {FinishReason.ABORT, FinishReason.EOS}
    assert [end.text for end in ends[:30] + ends[60:]] == [f"number {i}" for i in [*range(30), *range(60, 100)]]
    assert missing.wait().reason is FinishReason.FAIL


def test_more_sequences_may_run_than_the_runtime_has_room_for(tiny_model: Path) -> None:
    runtime = ScriptedRuntime(dict(GUESTS))
    runtime.max_guests = NUM_WORKER_SLOTS // 2
    runtime.hold.clear()
    config = EngineConfig(model_dir=tiny_model, num_pages=700, max_num_seqs=300, max_batch_tokens=4000)
    with Engine(config, runtime=runtime) as engine:
        handles = [submit(engine, "guest", max_tokens=3) for _ in range(300)]
        runtime.hold.set()
        assert {handle.wait().reason for handle in handles} == {FinishReason.LENGTH}


def test_guests_start_by_priority(tiny_model: Path) -> None:
    class Noting(ScriptedRuntime):
        def instantiate(self, **asked: Any) -> Any:
            started.append(asked["module_arg"])
            return super().instantiate(**asked)

    started: list[Any] = []
    runtime = Noting(dict(GUESTS))
    with Engine(EngineConfig(model_dir=tiny_model, num_pages=64, max_num_seqs=8), runtime=runtime) as engine:
        runtime.hold.clear()
        handles = [
            engine.submit(Request(prompt="Go", controller=ControllerCall("spell", argument), priority=priority))
            for argument, priority in [*(("early", 0) for _ in range(8 + 16)), ("usual", 0), ("late", 1), ("soon", -1)]
        ]
        runtime.hold.set()
        assert [handle.wait().text for handle in handles[-3:]] == ["usual", "late", "soon"]
    assert started[8 + 16 :] == ["soon", "usual", "late"]


def test_a_slow_start_blocks_nobody(engine: Engine, runtime: ScriptedRuntime) -> None:
    runtime.hold.clear()
    slow = submit(engine, "spell", "late")
    assert engine.generate("a", max_tokens=5, temperature=0.0) is not None
    runtime.hold.set()
    assert slow.wait().text == "late"


def test_aborted_while_its_guest_starts(engine: Engine, runtime: ScriptedRuntime) -> None:
    runtime.hold.clear()
    slow = submit(engine, "spell", "late")
    slow.abort()
    assert slow.wait().reason is FinishReason.ABORT
    runtime.hold.set()
    # A guest started afterwards is discarded; the fixture checks.
    deadline = time.monotonic() + 2
    while not runtime.all or runtime._started:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_nothing_to_generate_starts_no_guest(engine: Engine, runtime: ScriptedRuntime) -> None:
    end = submit(engine, "spell", "abc", max_tokens=0).wait()
    assert (end.reason, end.tokens, end.text) == (FinishReason.LENGTH, (), "")
    assert not runtime.all
