"""The samplers: numpy, and the kernels at every level of this processor."""

import pytest

from aici_engine.native import build, cpu_levels, library
from aici_engine.sample.native import NativeSampling

ABLE = [level.name for level in cpu_levels.levels() if level.needs <= cpu_levels.features()]


@pytest.fixture(scope="module", params=["numpy", *ABLE])
def native(request: pytest.FixtureRequest) -> NativeSampling | None:
    """Return the kernels, or `None` for numpy."""
    if request.param == "numpy":
        return None
    build.build()
    return NativeSampling(library.of_level(request.param), 49152)
