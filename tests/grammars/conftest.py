from pathlib import Path

import pytest

from aici_controllers import build
from tests.support.fake_host import GuestModule
from tests.support.tool_guest import ToolGuest

_CONTROLLERS = Path(__file__).resolve().parents[2] / "controllers"


def _guest() -> Path:
    """The shipped guest, built again if its sources changed."""
    modules = build.build_shipped(_CONTROLLERS / "guests", _CONTROLLERS / "aici_controllers" / "guests")
    return next(path for path in modules if path.stem == "grammar")


@pytest.fixture(scope="session")
def grammar_tool() -> ToolGuest:
    return ToolGuest(_guest())


@pytest.fixture(scope="session")
def grammar_module() -> GuestModule:
    return GuestModule(_guest())
