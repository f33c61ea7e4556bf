"""The call of an engine after each step."""

import queue
import threading
from pathlib import Path
from typing import Any

from aici_engine.config import EngineConfig, SamplingParams
from aici_engine.engine import Engine
from aici_engine.events import (
    FinishEvent,
)
from aici_engine.request import ControllerCall, Request
from tests.engine.control.scripted_guests import (
    GUESTS,
)
from tests.engine.support import (
    ScriptedRuntime,
)


def test_on_step_follows_whatever_was_told(tiny_model: Path, runtime: ScriptedRuntime) -> None:
    events: queue.SimpleQueue[object] = queue.SimpleQueue()
    with Engine(
        EngineConfig(model_dir=tiny_model, num_pages=64), runtime=runtime, on_step=lambda: events.put("step")
    ) as engine:

        def told(name: str, **sampling: Any) -> list[object]:
            """Up to the step after the end."""
            request = Request(
                prompt="Hello", sampling=SamplingParams(temperature=0.0, **sampling),
                controller=ControllerCall(name, "ab") if name else None,
            )  # fmt: skip
            handle = engine.submit(request, sink=events.put)
            if name == "suspend":
                handle.abort()
            seen = [events.get(timeout=5)]
            while not (len(seen) > 1 and isinstance(seen[-2], FinishEvent)):
                seen.append(events.get(timeout=5))
            return seen

        def kinds(seen: list[object]) -> list[str]:
            return [event if isinstance(event, str) else type(event).__name__ for event in seen]

        # Two sinks in one step, one call: the token and the end.
        tokens = ["TokenEvent", "step", "TokenEvent", "FinishEvent", "step"]
        assert kinds(told("", max_tokens=2)) == ["AcceptedEvent", "step", *tokens]
        assert kinds(told("missing")) == kinds(told("spell", max_tokens=0)) == ["FinishEvent", "step"]
        assert kinds(told("suspend"))[-2:] == ["FinishEvent", "step"]
        # Forced tokens do not wait for the model.
        assert kinds(told("force"))[:5] == ["AcceptedEvent", "TokenEvent", "TokenEvent", "step", "TokenEvent"]
    assert events.empty()


def test_on_step_comes_before_the_next_round(tiny_model: Path) -> None:
    events: list[str] = []

    class Watched(ScriptedRuntime):
        def _count_round(self) -> None:
            events.append("round")
            super()._count_round()

    config = EngineConfig(model_dir=tiny_model, num_pages=64)
    with Engine(config, runtime=Watched(dict(GUESTS)), on_step=lambda: events.append("step")) as engine:
        request = Request(prompt="Hello", controller=ControllerCall("spell", "ab"))
        ended = threading.Event()

        def sink(event: object) -> None:
            events.append(type(event).__name__)
            if isinstance(event, FinishEvent):
                ended.set()

        engine.submit(request, sink=sink)
        assert ended.wait(5)
    start = ["AcceptedEvent", "round", "step", "TokenEvent", "step"]
    assert events[:14] == [*start, *["round", "TokenEvent", "step"] * 2, "round", "FinishEvent", "step"]


def test_on_step_that_raises_does_not_take_the_engine_along(tiny_model: Path) -> None:
    def broken() -> None:
        raise RuntimeError("boom")

    with Engine(EngineConfig(model_dir=tiny_model, num_pages=64), on_step=broken) as engine:
        assert engine.generate("a", max_tokens=3) is not None
        assert engine.generate("a", max_tokens=3) is not None
