"""Forks beside the stream of another user: the stream goes on while processes start, and the texts are the same."""

from contextlib import ExitStack
from pathlib import Path

import pytest

from aici_engine.config import EngineConfig, SamplingParams
from aici_engine.engine import Engine
from aici_engine.events import Event, ForkedEvent, ForkEvent, TokenEvent
from aici_engine.request import ControllerCall, Request, RequestHandle, Share
from aici_runtime.client import Runtime, RuntimeConfig
from aici_runtime.config import patient
from tests.engine.programs import by_fork
from tests.engine.support import write_tiny_model
from tests.support.guests import build_test_guest

pytestmark = pytest.mark.e2e

NUM_FORKS = 30
PROGRAM = f"fixed ab\nfork {NUM_FORKS}\nfree 4\n1:fork 3\nfree 6"


def submit_forks(engine: Engine, module_id: str) -> RequestHandle:
    sampling = SamplingParams(temperature=1.0, seed=5)
    return engine.submit(Request(prompt="Hello", sampling=sampling, controller=ControllerCall(module_id, PROGRAM)))


def texts(events: list[Event]) -> list[str]:
    """Return the sorted texts: the numbers of forks depend on scheduling, because a fork forks too."""
    forks = by_fork(events).values()
    assert [told.end.error for told in forks if told.end] == [None] * (NUM_FORKS + 2)
    return sorted(told.end.text for told in forks if told.end)


def num_steps_of_forking(engine: Engine, handle: RequestHandle, seen: list[Event]) -> int:
    """Return the number of the engine's steps from the fork to the root's next token, for which all forks are there."""
    begun = None
    for event in handle.events():
        seen.append(event)
        if isinstance(event, ForkEvent) and isinstance(event.event, ForkedEvent) and begun is None:
            begun = engine.get_stats()["num_steps"]
        if isinstance(event, TokenEvent) and begun is not None:
            return engine.get_stats()["num_steps"] - begun
    raise AssertionError("no fork")


def test_a_stream_goes_on_while_forks_start(tmp_path: Path) -> None:
    model = write_tiny_model(tmp_path, context=8192)
    config = EngineConfig(model_dir=model, num_pages=3000, page_size=4, max_num_seqs=40, max_batch_tokens=64)
    with ExitStack() as stack:
        runtime = stack.enter_context(Runtime(patient(RuntimeConfig(tokenizer=model, max_forks=NUM_FORKS + 6))))
        runtime.wait_ready()
        engine = stack.enter_context(Engine(config, runtime=runtime))
        module_id = runtime.mk_module(build_test_guest("lines").read_bytes()).module_id
        alone = list(submit_forks(engine, module_id).events())
        endless = SamplingParams(temperature=0.0, ignore_eos=True)
        stream = engine.submit(Request(prompt="Hello", sampling=endless, share=Share(owner="other")))
        next(stream.events())
        beside: list[Event] = []
        handle = submit_forks(engine, module_id)
        num_steps = num_steps_of_forking(engine, handle, beside)
        beside += handle.events()
        stream.abort()
    assert texts(alone) == texts(beside)
    assert num_steps > 2, "no step waits for 30 processes"
