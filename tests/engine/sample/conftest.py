"""What samples: numpy, and the kernels at each level that this processor has."""

import pytest

from aici_engine.native import build, levels, library
from aici_engine.sample.native import NativeSampling

ABLE = [level.name for level in levels.levels() if level.needs <= levels.features()]


@pytest.fixture(scope="module", params=["numpy", *ABLE])
def native(request: pytest.FixtureRequest) -> NativeSampling | None:
    """None: without kernels."""
    if request.param == "numpy":
        return None
    build.build()
    return NativeSampling(library.of_level(request.param), 49152)
