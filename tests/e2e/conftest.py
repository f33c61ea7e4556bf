"""The engine and the server that tests share: both with the default model and the real runtime."""

from collections.abc import Callable, Iterator

import pytest

from aici_controllers.catalog import guest_path
from aici_engine.config import EngineConfig
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
    with Engine(EngineConfig(model_dir=default_model_dir()), runtime=runtime) as engine:
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
