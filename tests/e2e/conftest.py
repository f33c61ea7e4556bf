"""The engine and the server that tests share: both with the default model and the real runtime."""

import os
import shlex
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from aici_controllers.catalog import guest_path
from aici_engine.config import EngineConfig, VllmSettings
from aici_engine.engine import Engine
from aici_engine.request import ControllerCall
from aici_runtime.client import Runtime, RuntimeConfig
from tests.support.model import default_model_dir
from tests.support.server import Server, serving

CallRegex = Callable[[str], ControllerCall]


@pytest.fixture(scope="session")
def runtime() -> Iterator[Runtime]:
    with Runtime(RuntimeConfig(tokenizer=default_model_dir())) as runtime:
        runtime.wait_ready()
        yield runtime


@pytest.fixture(scope="session")
def engine(runtime: Runtime) -> Iterator[Engine]:
    """With AICI_TEST_VLLM="FLAGS", in an environment with vLLM: the engine on vLLM. See `CONTRIBUTING.md`."""
    config = EngineConfig(model_dir=default_model_dir())
    if (flags := os.environ.get("AICI_TEST_VLLM")) is not None:
        vllm = VllmSettings(args=tuple(shlex.split(flags)))
        config = replace(config, vllm=vllm, dtype="bfloat16", max_context=1024, max_num_seqs=16)
    with Engine(config, runtime=runtime) as engine:
        yield engine


@pytest.fixture(scope="session")
def regex(runtime: Runtime) -> CallRegex:
    """A controller call for a pattern."""
    module_id = runtime.mk_module(guest_path("regex").read_bytes()).module_id
    return lambda pattern: ControllerCall(module_id, pattern)


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """A server without keys, with the shipped controllers."""
    with serving() as server:
        yield server
