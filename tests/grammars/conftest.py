import pytest

from aici_controllers.catalog import guest_path
from tests.support.fake_host import GuestModule
from tests.support.guests import shipped_guest
from tests.support.tool_guest import ToolGuest


@pytest.fixture(scope="session")
def grammar_module() -> GuestModule:
    return shipped_guest("grammar")


@pytest.fixture(scope="session")
def grammar_tool(grammar_module: GuestModule) -> ToolGuest:
    assert grammar_module  # built
    return ToolGuest(guest_path("grammar"))
