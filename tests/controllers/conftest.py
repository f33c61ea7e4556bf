from pathlib import Path

import pytest

from aici_controllers import build
from tests.support.fake_host import GuestModule

_CONTROLLERS = Path(__file__).resolve().parents[2] / "controllers"


@pytest.fixture(scope="session")
def regex_module() -> GuestModule:
    """Return the shipped guest, rebuilt if its sources changed."""
    modules = build.build_shipped(_CONTROLLERS / "guests", _CONTROLLERS / "aici_controllers" / "guests")
    return GuestModule(next(path for path in modules if path.stem == "regex"))
