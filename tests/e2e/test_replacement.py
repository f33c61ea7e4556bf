"""A runtime is killed under a running engine, and the engine goes on with a new runtime."""

import os
import signal
from pathlib import Path

import pytest

from aici_base.errors import RuntimeDiedError
from aici_controllers.catalog import guest_path
from aici_engine.config import EngineConfig, SamplingParams
from aici_engine.engine import Engine
from aici_engine.events import TokenEvent
from aici_engine.request import ControllerCall, Request, RequestHandle
from aici_runtime.client import Runtime, RuntimeConfig
from tests.engine.support import write_tiny_model

pytestmark = pytest.mark.e2e


def test_after_the_runtime_was_killed_another_takes_over(tmp_path: Path) -> None:
    model_dir = write_tiny_model(tmp_path, context=4096, num_heads=2)
    wasm = guest_path("regex").read_bytes()
    with Runtime(RuntimeConfig(tokenizer=model_dir)) as first, Runtime(RuntimeConfig(tokenizer=model_dir)) as second:
        first.wait_ready()
        second.wait_ready()
        with Engine(EngineConfig(model_dir=model_dir), runtime=first) as engine:

            def submit(runtime: Runtime, pattern: str) -> RequestHandle:
                call = ControllerCall(runtime.mk_module(wasm).module_id, pattern)
                return engine.submit(Request(prompt="Once", sampling=SamplingParams(seed=1), controller=call))

            lost = submit(first, "[a-z ]{4000}")
            plain = engine.submit(Request(prompt="Once", sampling=SamplingParams(max_tokens=40, ignore_eos=True)))
            assert any(isinstance(event, TokenEvent) for event in lost.events())
            os.kill(first.pid, signal.SIGKILL)
            assert isinstance(lost.wait().error, RuntimeDiedError)
            with pytest.raises(RuntimeDiedError):
                engine.generate("Once", controller=ControllerCall("any"))
            engine.use_runtime(second)
            assert submit(second, "[0-9]{3}").wait().text.isdigit()
            assert plain.wait().usage.sampled_tokens == 40
            assert engine.get_stats()["cache_usage"] == 0.0
