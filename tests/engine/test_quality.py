"""The loss of quality of the default model with fewer bits, on a part of the text of `aici bench quality`."""

from collections.abc import Callable
from functools import cache

import pytest

from aici_cli.bench.engines.compare import PROSE
from aici_cli.bench.quality import Measured, measure
from aici_engine.config import Dtype, EngineConfig
from aici_engine.engine import Engine
from tests.support.model import default_model_dir

pytestmark = pytest.mark.e2e
NUM_TOKENS = 512


@pytest.fixture(scope="module")
def measured() -> Callable[[Dtype], Measured]:
    @cache
    def measured(dtype: Dtype) -> Measured:
        with Engine(EngineConfig(model_dir=default_model_dir(), dtype=dtype, max_context=1024)) as engine:
            # Prose, code and JSON from this position.
            return measure(engine, engine.tokenize(PROSE.read_text())[1200 : 1200 + NUM_TOKENS], num_greedy=8)

    return measured


@pytest.mark.parametrize(("dtype", "lost"), [("int8", 0.01), ("int4", 0.06)])
def test_perplexity(measured: Callable[[Dtype], Measured], dtype: Dtype, lost: float) -> None:
    compared = measured(dtype).compared(measured("float32"))
    assert compared["tokens"] >= NUM_TOKENS - 1
    assert 0.9 < compared["perplexity_ratio"] < 1 + lost
    assert compared["same_likeliest"] > 0.9
