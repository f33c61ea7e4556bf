"""An engine over a scripted runtime."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from aici_engine.config import EngineConfig
from aici_engine.engine import Engine
from tests.engine.control.scripted_guests import (
    GUESTS,
)
from tests.engine.support import (
    ScriptedRuntime,
)


@pytest.fixture
def runtime() -> ScriptedRuntime:
    return ScriptedRuntime(dict(GUESTS))


@pytest.fixture
def engine(tiny_model: Path, runtime: ScriptedRuntime) -> Iterator[Engine]:
    config = EngineConfig(model_dir=tiny_model, num_pages=64, page_size=4, max_num_seqs=8, max_batch_tokens=32)
    with Engine(config, runtime=runtime) as engine:
        yield engine
        deadline = time.monotonic() + 2
        broken = runtime.dies_at_round or runtime.breaks_at_round
        while runtime.live and not broken and time.monotonic() < deadline:
            time.sleep(0.005)
        assert not runtime.live or broken
        assert not runtime._started
        assert engine.get_stats()["cache_usage"] == 0.0
        engine._components.cache.check_integrity()
