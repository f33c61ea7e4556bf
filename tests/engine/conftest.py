"""A tiny model for all tests of the engine."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from aici_engine import components
from aici_engine.config import EngineConfig
from aici_engine.engine import Engine
from aici_engine.native.build import build
from tests.engine.support import write_tiny_model
from tests.support.stage_threads import StagedEngines


@pytest.fixture(scope="session", autouse=True)
def _kernels() -> None:
    """Build the kernels from the current sources."""
    build()


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("tiny"))


@pytest.fixture
def engine(tiny_model: Path) -> Iterator[Engine]:
    config = EngineConfig(model_dir=tiny_model, num_pages=64, page_size=4, max_num_seqs=8, max_batch_tokens=32)
    with Engine(config) as engine:
        yield engine
        assert engine.get_stats()["cache_usage"] == 0.0


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if int(os.environ.get("AICI_TEST_STAGES", "0")):
        for item in items:
            if item.get_closest_marker("one_process") is not None:
                item.add_marker(pytest.mark.skip("AICI_TEST_STAGES divides all models"))


@pytest.fixture(scope="session", autouse=True)
def staged_engines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StagedEngines | None]:
    """With AICI_TEST_STAGES=N, every engine runs its model in N stages besides the driver, with AICI_TEST_DEPTH steps
    in flight (default: N + 1)."""
    if not (num_stages := int(os.environ.get("AICI_TEST_STAGES", "0"))):
        yield None
        return
    local = components.make_executor
    depth = int(os.environ.get("AICI_TEST_DEPTH", str(num_stages + 1)))
    engines = StagedEngines(tmp_path_factory.mktemp("stages"), num_stages=num_stages, depth=depth, local=local)
    components.make_executor = engines.make_executor
    interval = sys.getswitchinterval()
    sys.setswitchinterval(0.0002)  # the stages are threads of one process
    yield engines
    sys.setswitchinterval(interval)
    components.make_executor = local
    print(f"\n{engines.num_staged} engines ran in stages, {engines.num_local} in one process")
