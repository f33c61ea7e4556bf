"""A tiny model for all tests of the engine."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from aici_engine.config import EngineConfig
from aici_engine.engine import Engine
from aici_engine.native.build import build
from tests.engine.support import write_tiny_model


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
