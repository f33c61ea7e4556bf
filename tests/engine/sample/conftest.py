"""What samples: numpy, and the kernels at each level that this processor has."""

import pytest

from aici_engine.native import build, cpu_levels, library
from aici_engine.sample.native import NativeSampling

ABLE = [level.name for level in cpu_levels.levels() if level.needs <= cpu_levels.features()]


@pytest.fixture(scope="module", params=["numpy", *ABLE])
def native(request: pytest.FixtureRequest) -> NativeSampling | None:
    """None: without kernels."""
    if request.param == "numpy":
        return None
    build.build()
    return NativeSampling(library.of_level(request.param), 49152)
