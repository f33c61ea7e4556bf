"""Several engines use one runtime in turn."""

from pathlib import Path

from aici_engine.config import EngineConfig, SamplingParams
from aici_engine.engine import Engine
from aici_engine.events import FinishReason
from aici_engine.request import ControllerCall, Request, RequestHandle
from aici_runtime.client import Runtime
from aici_runtime.config import RuntimeConfig
from tests.runtime.support import wat


def test_a_guest_that_still_starts_for_a_closed_engine_is_in_nobodys_way(tiny_model: Path, tmp_path: Path) -> None:
    """Both engines count their requests from 1, and the name of a request is taken while its guest starts."""

    def submit(engine: Engine, module_id: str) -> RequestHandle:
        sampling = SamplingParams(temperature=0.0, max_tokens=3)
        return engine.submit(Request(prompt="Hello", sampling=sampling, controller=ControllerCall(module_id)))

    config = EngineConfig(model_dir=tiny_model, num_pages=64)
    with Runtime(RuntimeConfig(tokenizer=tiny_model, cache_dir=tmp_path)) as runtime:
        runtime.wait_ready()
        endless = runtime.mk_module(wat.Module().build(prompt=wat.SPIN)).module_id
        plain = runtime.mk_module(wat.plain()).module_id
        with Engine(config, runtime=runtime) as second:
            with Engine(config, runtime=runtime) as first:
                submit(first, endless)
            end = submit(second, plain).wait()
        assert (end.reason, end.error, end.usage.sampled_tokens) == (FinishReason.LENGTH, None, 3)
